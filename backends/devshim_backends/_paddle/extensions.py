"""The extensions ``linalg`` and ``fft`` of the array API for PaddlePaddle: aliases, with the standard's results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import paddle

from devshim_backends._array_api import results
from devshim_backends._array_api.manipulation import axes_of

if TYPE_CHECKING:
    from collections.abc import Callable


def integer_matmul(first: Any, second: Any, kept: str) -> Any:
    """Return a product of integers, for which PaddlePaddle has no kernel on the CPU (3.3): in sums of products."""
    first, second = paddle.cast(first, "int64"), paddle.cast(second, "int64")
    vectors = len(first.shape) == 1, len(second.shape) == 1
    first = first.unsqueeze(0) if vectors[0] else first
    second = second.unsqueeze(1) if vectors[1] else second
    found = (first.unsqueeze(-1) * second.unsqueeze(-3)).sum(-2)
    found = found.squeeze(-1) if vectors[1] else found
    found = found.squeeze(-1 if vectors[1] else -2) if vectors[0] else found
    return paddle.cast(found, kept)


def _cholesky(x: Any, /, *, upper: bool = False) -> Any:
    return paddle.linalg.cholesky(x, upper=upper)


def _qr(x: Any, /, *, mode: str = "reduced") -> results.QRResult:
    """Return both factors; their gradients end the process natively if only one of them is used (3.3)."""
    q, r = paddle.linalg.qr(x, mode)
    if x.stop_gradient:
        return results.QRResult(q, r)
    return results.QRResult(q + _linked(r), r + _linked(q))


def _linked(x: Any) -> Any:
    """Return zero, also for infinity and NaN, with a gradient of zeros for a tensor."""
    return paddle.where(paddle.zeros_like(x, dtype="bool"), x, paddle.zeros_like(x)).sum()


def _eigvals(x: Any, /) -> Any:
    """Return eigenvalues, with the gradient of ``eig``: that of ``eigvals`` is silently zero (3.3)."""
    return paddle.linalg.eigvals(x) if x.stop_gradient else paddle.linalg.eig(x)[0]


def _eigvalsh(x: Any, /) -> Any:
    """Return eigenvalues with their gradient; that of ``eigvalsh`` is wrong for stacks of matrices (3.3).

    ``change`` is zero, and has the gradient of the matrix. The gradient of ``eigh`` is NaN for equal eigenvalues.
    """
    if x.stop_gradient:
        return paddle.linalg.eigvalsh(x)
    values, vectors = paddle.linalg.eigh(x.detach())
    change = x - x.detach()
    order = [*range(len(x.shape) - 2), len(x.shape) - 1, len(x.shape) - 2]
    change = (change + paddle.conj(paddle.transpose(change, order))) / 2
    moved = (paddle.conj(vectors) * paddle.matmul(change, vectors)).sum(-2)
    return values + (paddle.real(moved) if moved.dtype != values.dtype else moved)


def _slogdet(x: Any, /) -> results.SlogdetResult:
    found = paddle.linalg.slogdet(x)
    return results.SlogdetResult(found[0], found[1])


def _solve(x1: Any, x2: Any, /) -> Any:
    if len(x2.shape) == 1:
        return paddle.linalg.solve(x1, x2.unsqueeze(-1)).squeeze(-1)
    return paddle.linalg.solve(x1, x2)


def _svd(x: Any, /, *, full_matrices: bool = True) -> results.SVDResult:
    u, s, vh = paddle.linalg.svd(x, full_matrices=full_matrices)
    if 0 in x.shape[-2:]:  # PaddlePaddle does not initialize the matrix that has elements (3.3)
        u, vh = (_identity(each) if each.size else each for each in (u, vh))
    return results.SVDResult(u, s, vh)


def _identity(x: Any) -> Any:
    """Return the identity matrix in the shape of square matrices."""
    return paddle.eye(x.shape[-1], dtype=x.dtype).expand(x.shape)


def _transform(fn: Callable[..., Any]) -> Callable[..., Any]:
    def transform(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
        return fn(x, n, axis, norm)

    return transform


def _transform_axes(fn: Callable[..., Any]) -> Callable[..., Any]:
    def transform(x: Any, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> Any:
        if axes is None:
            count = len(x.shape)
            axes = range(count if s is None else count - len(s), count) if s is not None else range(count)
        return fn(x, None if s is None else list(s), list(axes), norm)

    return transform


def _make_shift(sign: int) -> Callable[..., Any]:
    def shift(x: Any, /, *, axes: Any = None) -> Any:
        which = list(axes_of(axes, len(x.shape), "fftshift"))
        return paddle.roll(x, [sign * (x.shape[i] // 2) for i in which], which)

    return shift


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "linalg.cholesky": _cholesky,
    "linalg.det": lambda x, /: paddle.linalg.det(x),
    "linalg.eig": lambda x, /: results.EigResult(*paddle.linalg.eig(x)),
    "linalg.eigh": lambda x, /: results.EigResult(*paddle.linalg.eigh(x)),
    "linalg.eigvals": _eigvals,
    "linalg.eigvalsh": _eigvalsh,
    "linalg.inv": lambda x, /: paddle.linalg.inv(x),
    "linalg.qr": _qr,
    "linalg.slogdet": _slogdet,
    "linalg.solve": _solve,
    "linalg.svd": _svd,
    **{f"fft.{name}": _transform(getattr(paddle.fft, name)) for name in ("fft", "ifft", "rfft", "irfft")},
    **{f"fft.{name}": _transform(getattr(paddle.fft, name)) for name in ("hfft", "ihfft")},
    **{f"fft.{name}": _transform_axes(getattr(paddle.fft, name)) for name in ("fftn", "ifftn", "rfftn", "irfftn")},
    "fft.fftshift": _make_shift(1),
    "fft.ifftshift": _make_shift(-1),
    "fft.fftfreq": lambda n, /, *, d=1.0, dtype="float32": paddle.cast(paddle.fft.fftfreq(n, d, "float64"), dtype),
    "fft.rfftfreq": lambda n, /, *, d=1.0, dtype="float32": paddle.cast(paddle.fft.rfftfreq(n, d, "float64"), dtype),
}
"""The functions by their names in the standard."""
