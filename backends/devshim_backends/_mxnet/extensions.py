"""The extension ``linalg`` of the array API for MXNet: aliases of ``mx.np.linalg``, with the standard's results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mxnet as mx
import numpy as np

from devshim.errors import UnsupportedError
from devshim_backends._array_api import results
from devshim_backends._mxnet.internals.elementwise import computed_in_float32

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


def _det(x: Any, /) -> Any:
    return mx.np.linalg.det(x) if x.shape[-1] else mx.np.ones(x.shape[:-2], dtype=x.dtype)


def _slogdet(x: Any, /) -> results.SlogdetResult:
    if x.shape[-1]:
        return results.SlogdetResult(*mx.np.linalg.slogdet(x))
    return results.SlogdetResult(*(fill(x.shape[:-2], dtype=x.dtype) for fill in (mx.np.ones, mx.np.zeros)))


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "linalg.cholesky": _cholesky,
    "linalg.det": _det,
    "linalg.eigh": lambda x, /: results.EigResult(*mx.np.linalg.eigh(x)),
    "linalg.eigvalsh": lambda x, /: mx.np.linalg.eigvalsh(x),
    "linalg.inv": lambda x, /: mx.np.linalg.inv(x),
    "linalg.qr": _qr,
    "linalg.slogdet": _slogdet,
    "linalg.solve": _solve,
    "linalg.svd": _svd,
}

FUNCTIONS = {name: computed_in_float32(fn) for name, fn in _FUNCTIONS.items()}
"""The functions by their names in the standard."""
