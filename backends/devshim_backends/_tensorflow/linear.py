"""The extension ``linalg`` of the array API for TensorFlow: aliases of ``tf.linalg``, with the standard's results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from devshim_backends._array_api import results

if TYPE_CHECKING:
    from collections.abc import Callable


def _cholesky(x: Any, /, *, upper: bool = False) -> Any:
    found = tf.linalg.cholesky(x)
    return tf.linalg.adjoint(found) if upper else found


def _solve(x1: Any, x2: Any, /) -> Any:
    if len(x2.shape) == 1:
        return tf.squeeze(_solve(x1, x2[:, None]), -1)
    batch = tf.broadcast_static_shape(x1.shape[:-2], x2.shape[:-2])
    return tf.linalg.solve(tf.broadcast_to(x1, batch + x1.shape[-2:]), tf.broadcast_to(x2, batch + x2.shape[-2:]))


def _svd(x: Any, /, *, full_matrices: bool = True) -> results.SVDResult:
    s, u, v = tf.linalg.svd(x, full_matrices=full_matrices)
    return results.SVDResult(u, s, tf.linalg.adjoint(v))


def _svdvals(x: Any, /) -> Any:
    return tf.linalg.svd(x, compute_uv=False)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "linalg.cholesky": _cholesky,
    "linalg.det": lambda x, /: tf.linalg.det(x),
    "linalg.eig": lambda x, /: results.EigResult(*tf.linalg.eig(x)),
    "linalg.eigh": lambda x, /: results.EigResult(*tf.linalg.eigh(x)),
    "linalg.eigvals": lambda x, /: tf.linalg.eigvals(x),
    "linalg.eigvalsh": lambda x, /: tf.linalg.eigvalsh(x),
    "linalg.inv": lambda x, /: tf.linalg.inv(x),
    "linalg.qr": lambda x, /, *, mode="reduced": results.QRResult(*tf.linalg.qr(x, mode == "complete")),
    "linalg.slogdet": lambda x, /: results.SlogdetResult(*tf.linalg.slogdet(x)),
    "linalg.solve": _solve,
    "linalg.svd": _svd,
    "linalg.svdvals": _svdvals,
}
"""The functions by their names in the standard."""
