"""The extension ``linalg`` of the array API for MXNet: aliases of ``mx.np.linalg``, with the standard's results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mxnet as mx
import numpy as np

from devshim.errors import UnsupportedError
from devshim_backends._array_api import results

if TYPE_CHECKING:
    from collections.abc import Callable


def _cholesky(x: Any, /, *, upper: bool = False) -> Any:
    found = mx.np.linalg.cholesky(x)
    return found.swapaxes(-1, -2) if upper else found


def _qr(x: Any, /, *, mode: str = "reduced") -> results.QRResult:
    if mode != "reduced":
        msg = f"MXNet's qr has only the mode 'reduced', and mode={mode!r} was given"
        raise UnsupportedError(msg, "leave mode out")
    return results.QRResult(*mx.np.linalg.qr(x))


def _solve(x1: Any, x2: Any, /) -> Any:
    if len(x2.shape) == 1:
        return mx.np.linalg.solve(x1, mx.np.expand_dims(x2, -1)).squeeze(-1)
    batch = np.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    both = (mx.np.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (x1, x2))
    return mx.np.linalg.solve(*both)


def _svd(x: Any, /, *, full_matrices: bool = True) -> results.SVDResult:
    rows, columns = x.shape[-2:]
    if full_matrices and rows != columns:
        msg = f"MXNet's svd has no full matrices, and the matrix is {rows} x {columns}"
        raise UnsupportedError(msg, "ask for the reduced ones: xp.linalg.svd(x, full_matrices=False)")
    if rows <= columns:
        return results.SVDResult(*mx.np.linalg.svd(x))
    u, s, vh = mx.np.linalg.svd(x.swapaxes(-1, -2))
    return results.SVDResult(vh.swapaxes(-1, -2), s, u.swapaxes(-1, -2))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "linalg.cholesky": _cholesky,
    "linalg.det": lambda x, /: mx.np.linalg.det(x),
    "linalg.eigh": lambda x, /: results.EigResult(*mx.np.linalg.eigh(x)),
    "linalg.eigvalsh": lambda x, /: mx.np.linalg.eigvalsh(x),
    "linalg.inv": lambda x, /: mx.np.linalg.inv(x),
    "linalg.qr": _qr,
    "linalg.slogdet": lambda x, /: results.SlogdetResult(*mx.np.linalg.slogdet(x)),
    "linalg.solve": _solve,
    "linalg.svd": _svd,
}
"""The functions by their names in the standard."""
