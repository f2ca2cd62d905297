"""The extensions ``linalg`` and ``fft`` of the array API for TensorFlow, with the standard's names and results.

The transforms of ``tf.signal`` take the last axis only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from devshim_backends._array_api import results
from devshim_backends._array_api.manipulation import axes_of, axis_of

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
"""The functions of ``linalg`` by their names in the standard."""


# ---------------------------------------------------------------- fft
def _cut_or_pad(x: Any, n: int | None, axis: int) -> Any:
    """Return a tensor cut, or padded with zeros, to a length along an axis."""
    size = x.shape[axis]
    if n is None or n == size:
        return x
    if n < size:
        return x[(slice(None),) * axis + (slice(None, n),)]
    return tf.pad(x, [(0, n - size if i == axis else 0) for i in range(len(x.shape))])


def _scale(norm: str | None, count: int, inverse: bool) -> float:
    """Return the factor for a transform of TensorFlow, which divides by the count in the inverse one only."""
    wanted = {"backward": 1 / count if inverse else 1.0, "forward": 1.0 if inverse else 1 / count}
    return float(wanted.get(norm or "backward", count**-0.5) * (count if inverse else 1))


def _transform(fn: Callable[[Any], Any], x: Any, axis: int, factor: float) -> Any:
    """Return a transform along an axis, multiplied by a factor."""
    last = len(x.shape) - 1
    order = [i for i in range(last + 1) if i != axis] + [axis]
    back = [order.index(i) for i in range(last + 1)]
    found = tf.transpose(fn(tf.transpose(x, order)), back)
    return found if factor == 1 else found * tf.constant(factor, found.dtype)


def _complex(x: Any) -> Any:
    return x if x.dtype.is_complex else tf.cast(x, tf.complex128 if x.dtype == tf.float64 else tf.complex64)


def _fft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
    where = axis_of(axis, len(x.shape), "fft")
    x = _cut_or_pad(_complex(x), n, where)
    return _transform(tf.signal.fft, x, where, _scale(norm, x.shape[where], False))


def _ifft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
    where = axis_of(axis, len(x.shape), "ifft")
    x = _cut_or_pad(_complex(x), n, where)
    return _transform(tf.signal.ifft, x, where, _scale(norm, x.shape[where], True))


def _rfft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
    where = axis_of(axis, len(x.shape), "rfft")
    x = _cut_or_pad(x, n, where)
    return _transform(tf.signal.rfft, x, where, _scale(norm, x.shape[where], False))


def _irfft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
    where = axis_of(axis, len(x.shape), "irfft")
    count = 2 * (x.shape[where] - 1) if n is None else n
    x = _cut_or_pad(_complex(x), count // 2 + 1, where)
    return _transform(lambda t: tf.signal.irfft(t, [count]), x, where, _scale(norm, count, True))


def _hfft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
    swapped = {"backward": "forward", "forward": "backward"}.get(norm, norm)
    return _irfft(tf.math.conj(_complex(x)), n=n, axis=axis, norm=swapped)


def _ihfft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
    swapped = {"backward": "forward", "forward": "backward"}.get(norm, norm)
    return tf.math.conj(_rfft(x, n=n, axis=axis, norm=swapped))


def _repeat_over_axes(one: Callable[..., Any], last: Callable[..., Any] | None = None, last_first: bool = True) -> Any:
    """Return a transform over several axes; ``last`` is the transform over the last axis, if it is different."""

    def transform(x: Any, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> Any:
        count = len(x.shape)
        which = axes_of(
            range(count - len(s), count) if axes is None and s is not None else _to_axes(axes), count, "fft"
        )
        sizes = [None] * len(which) if s is None else list(s)
        steps = [(one, axis, n) for axis, n in zip(which, sizes, strict=True)]
        steps[-1] = (last or one, *steps[-1][1:])
        for fn, axis, n in reversed(steps) if last_first else steps:
            x = fn(x, n=n, axis=axis, norm=norm)
        return x

    return transform


def _to_axes(axes: Any) -> Any:
    return axes if axes is None else tuple(axes)


def _make_shift(sign: int) -> Callable[..., Any]:
    def shift(x: Any, /, *, axes: Any = None) -> Any:
        which = axes_of(axes, len(x.shape), "fftshift")
        by = [x.shape[i] // 2 if sign > 0 else -(x.shape[i] // 2) for i in which]
        return tf.roll(x, by, which)

    return shift


def _fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None) -> Any:
    low = tf.range(n)
    return _frequencies(tf.where(low < (n + 1) // 2, low, low - n), n, d, dtype)


def _rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None) -> Any:
    return _frequencies(tf.range(n // 2 + 1), n, d, dtype)


def _frequencies(counts: Any, n: int, d: float, dtype: Any) -> Any:
    return tf.cast(tf.cast(counts, tf.float64) / (n * d), dtype or tf.float32)


def fft_functions() -> dict[str, Callable[..., Any]]:
    """Return the functions of ``fft`` by their names in the standard."""
    made = {
        "fft": _fft,
        "ifft": _ifft,
        "rfft": _rfft,
        "irfft": _irfft,
        "hfft": _hfft,
        "ihfft": _ihfft,
        "fftn": _repeat_over_axes(_fft),
        "ifftn": _repeat_over_axes(_ifft),
        "rfftn": _repeat_over_axes(_fft, _rfft),
        "irfftn": _repeat_over_axes(_ifft, _irfft, last_first=False),
        "fftshift": _make_shift(1),
        "ifftshift": _make_shift(-1),
        "fftfreq": _fftfreq,
        "rfftfreq": _rfftfreq,
    }
    return {f"fft.{name}": fn for name, fn in made.items()}
