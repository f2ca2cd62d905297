"""The extension ``linalg`` of the array API for MXNet: aliases of ``mx.np.linalg``, with the standard's results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mxnet as mx
import numpy as np

from devshim.errors import UnsupportedError
from devshim_backends._array_api import results
from devshim_backends._mxnet.internals.elementwise import computed_in_float32
from devshim_backends._mxnet.internals.native import IS_2, is_recording
from devshim_backends._mxnet.tracing import is_deferred

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


def _eigh(x: Any, /) -> results.EigResult:
    """Return eigenvalues and eigenvectors, with the gradients that MXNet's operator lacks: its own are zero.

    ``change`` is zero, and has the gradient of the matrix in the basis of the eigenvectors. The gradient of
    eigenvectors is that of functions to which rotations among equal eigenvalues make no difference.
    """
    if 0 in x.shape or not _may_need_gradients():
        return results.EigResult(*mx.np.linalg.eigh(x))
    values, vectors = mx.np.linalg.eigh(_constant(x))
    symmetric = mx.np.multiply(mx.np.add(x, x.swapaxes(-1, -2)), 0.5)
    rotated = mx.np.matmul(mx.np.matmul(vectors.swapaxes(-1, -2), symmetric), vectors)
    change = mx.np.subtract(rotated, _constant(rotated))
    gaps = mx.np.subtract(mx.np.expand_dims(values, -2), mx.np.expand_dims(values, -1))
    equal = mx.np.equal(gaps, 0).astype(gaps.dtype)
    factors = mx.np.true_divide(mx.np.subtract(1, equal), mx.np.add(gaps, equal))
    diagonal = mx.np.sum(mx.np.multiply(change, mx.np.eye(x.shape[-1], dtype=x.dtype)), axis=-1)
    turned = mx.np.matmul(vectors, mx.np.multiply(factors, change))
    return results.EigResult(mx.np.add(values, diagonal), mx.np.add(vectors, turned))


def _constant(x: Any) -> Any:
    """Return a tensor through which no gradient flows."""
    return mx.npx.stop_gradient(x) if IS_2 else x.detach()


def _eigvalsh(x: Any, /) -> Any:
    return _eigh(x).eigenvalues if _may_need_gradients() else mx.np.linalg.eigvalsh(x)


def _may_need_gradients() -> bool:
    """Return True while gradients are recorded, and in a model that is being compiled, whose calls may be."""
    return is_recording() or is_deferred()


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
    "linalg.eigh": _eigh,
    "linalg.eigvalsh": _eigvalsh,
    "linalg.inv": lambda x, /: mx.np.linalg.inv(x),
    "linalg.qr": _qr,
    "linalg.slogdet": _slogdet,
    "linalg.solve": _solve,
    "linalg.svd": _svd,
}

FUNCTIONS = {name: computed_in_float32(fn) for name, fn in _FUNCTIONS.items()}
"""The functions by their names in the standard."""
