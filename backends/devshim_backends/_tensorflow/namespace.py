"""The array-API namespace of TensorFlow: aliases of its functions, each in the scope of its arguments' device.

TensorFlow computes on the current device, not where its arguments are. Its functions promote no dtypes: here those of
two tensors are promoted as the standard requires. ``tf.experimental.numpy`` is not used: it has its own rules for
dtypes, and changes those of tensors' operators when they are enabled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from devshim.contract.namespaces import ABOUT_DTYPES
from devshim.devices.dtypes import DTYPES
from devshim.errors import ArgumentError
from devshim_backends._array_api.dtypes import Dtypes
from devshim_backends._array_api.elementwise import with_promotion
from devshim_backends._array_api.following import follow_tensors
from devshim_backends._array_api.manipulation import (
    axes_of,
    axis_of,
    need_choice,
    need_elements,
    need_tensors,
    take_axis,
)
from devshim_backends._array_api.table import complete
from devshim_backends._tensorflow import extensions
from devshim_backends._tensorflow.collectives import TensorflowCollectives
from devshim_backends._tensorflow.internals import ordering
from devshim_backends._tensorflow.internals.axes import index_of, mean, reduced_axes
from devshim_backends._tensorflow.internals.scalars import scalar
from devshim_backends._tensorflow.internals.unsigned import unsigned_power

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DT = Dtypes(
    {name: getattr(tf, name) for name in DTYPES},
    lambda x: str(x.dtype.name),
    lambda cls: hasattr(cls, "dtype") and hasattr(cls, "shape"),
    "int32",
)

_FLOATS = ["acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "exp", "expm1", "log", "log1p"]
_FLOATS += ["sin", "sinh", "sqrt", "tan", "tanh"]


def _as_floats(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that computes with integers and bools, for which it has no kernel, as floats."""
    return lambda x, /: fn(x if x.dtype.is_floating or x.dtype.is_complex else tf.cast(x, tf.float32))


def _truth(x: Any) -> Any:
    return x if x.dtype == tf.bool else _cast(x, tf.bool)


SAME = {
    **{name: _as_floats(getattr(tf.math, name)) for name in _FLOATS},
    **{name: getattr(tf.math, name) for name in ("conj", "real")},
    "square": tf.square,
    "logical_not": lambda x, /: tf.logical_not(_truth(x)),
    "bitwise_invert": lambda x, /: tf.logical_not(x) if x.dtype == tf.bool else tf.bitwise.invert(x),
}
"""Functions of one tensor that are the same in TensorFlow."""


PROMOTED = {
    **{name: getattr(tf, name) for name in ("add", "subtract", "multiply", "maximum", "minimum", "equal")},
    **{name: getattr(tf, name) for name in ("not_equal", "less", "less_equal", "greater", "greater_equal")},
    "logical_and": lambda a, b, /: tf.logical_and(_truth(a), _truth(b)),
    "logical_or": lambda a, b, /: tf.logical_or(_truth(a), _truth(b)),
    "atan2": lambda a, b, /: tf.math.atan2(*(tf.cast(x, tf.float32) if x.dtype.is_integer else x for x in (a, b))),
    "bitwise_left_shift": tf.bitwise.left_shift,
    "bitwise_right_shift": tf.bitwise.right_shift,
    "divide": tf.math.truediv,
    "floor_divide": tf.math.floordiv,
    "logical_xor": lambda a, b, /: tf.math.logical_xor(_truth(a), _truth(b)),
    "nextafter": tf.math.nextafter,
    "pow": lambda a, b, /: unsigned_power(a, b) if a.dtype.is_unsigned else tf.pow(a, b),
    "remainder": tf.math.floormod,
    "bitwise_and": lambda a, b, /: (tf.logical_and if a.dtype == tf.bool else tf.bitwise.bitwise_and)(a, b),
    "bitwise_or": lambda a, b, /: (tf.logical_or if a.dtype == tf.bool else tf.bitwise.bitwise_or)(a, b),
    "bitwise_xor": lambda a, b, /: (tf.math.logical_xor if a.dtype == tf.bool else tf.bitwise.bitwise_xor)(a, b),
}
"""Functions of two tensors, which get tensors of one dtype."""


def _cast(x: Any, dtype: Any) -> Any:
    if dtype == tf.bool:
        return tf.not_equal(x, tf.zeros((), x.dtype)) if x.dtype != tf.bool else tf.identity(x)
    if x.dtype.is_complex and not tf.as_dtype(dtype).is_complex:
        x = tf.math.real(x)  # tf.cast would warn
    return tf.identity(x) if x.dtype == dtype else tf.cast(x, dtype)


def _on_floats(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a rounding function that returns integers unchanged, as the standard requires."""
    return lambda x, /: tf.identity(x) if x.dtype.is_integer else fn(x)


def _answer_for_integers(fn: Callable[..., Any], answer: bool) -> Callable[..., Any]:
    """Return a question about floats that has one answer for integers, and for complex numbers asks both parts."""

    def ask(x: Any, /) -> Any:
        if x.dtype.is_complex:
            parts = fn(tf.math.real(x)), fn(tf.math.imag(x))
            return tf.logical_and(*parts) if answer else tf.logical_or(*parts)
        return fn(x) if x.dtype.is_floating else tf.fill(tf.shape(x), answer)

    return ask


def _abs(x: Any, /) -> Any:
    return tf.identity(x) if x.dtype.is_unsigned else tf.abs(x)


def _negative(x: Any, /) -> Any:
    return tf.zeros((), x.dtype) - x if x.dtype.is_unsigned else tf.negative(x)


def _sign(x: Any, /) -> Any:
    return tf.cast(tf.not_equal(x, 0), x.dtype) if x.dtype.is_unsigned else tf.sign(x)


def _round(x: Any, /) -> Any:
    if x.dtype.is_complex:
        return tf.complex(tf.round(tf.math.real(x)), tf.round(tf.math.imag(x)))
    return tf.identity(x) if x.dtype.is_integer else tf.round(x)


def _trunc(x: Any, /) -> Any:
    return tf.identity(x) if x.dtype.is_integer else tf.where(tf.less(x, 0), tf.math.ceil(x), tf.floor(x))


def _extreme(call: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    def reduce(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
        if 0 in x.shape:
            need_elements(x.shape, axes_of(axis, len(x.shape), call), call)
        return fn(x, reduced_axes(axis, x, call), keepdims)

    return reduce


def _accumulation(call: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    def reduce(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
        wanted = DT.sum_dtype(x, dtype)
        x = x if x.dtype is wanted else _cast(x, wanted)
        return fn(x, reduced_axes(axis, x, call), keepdims)

    return reduce


def _question(call: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    def reduce(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
        return fn(_cast(x, tf.bool), reduced_axes(axis, x, call), keepdims)

    return reduce


def _where(condition: Any, x1: Any, x2: Any, /) -> Any:
    return with_promotion(DT, scalar, _cast, lambda a, b: tf.where(condition, a, b))(x1, x2)


def _same_dtype(arrays: Any) -> list[Any]:
    dtypes = [x.dtype for x in arrays]
    if all(dtype is dtypes[0] for dtype in dtypes):  # TensorFlow has one object for each dtype; references have another
        return list(arrays)
    name = DT.result_name(*arrays)
    return [x if x.dtype.name == name else _cast(x, DT.own[name]) for x in arrays]


def _concat(arrays: Any, /, *, axis: int | None = 0) -> Any:
    xs = _same_dtype(need_tensors(arrays, "concat"))
    if axis is None:
        xs, axis = [tf.reshape(x, [-1]) for x in xs], 0
    return tf.concat(xs, axis_of(axis, len(xs[0].shape), "concat"))


def _stack(arrays: Any, /, *, axis: int = 0) -> Any:
    xs = _same_dtype(need_tensors(arrays, "stack"))
    return tf.stack(xs, axis_of(axis, len(xs[0].shape) + 1, "stack"))


def _expand_dims(x: Any, /, axis: Any = 0) -> Any:
    given = axis if isinstance(axis, tuple) else (axis,)
    for each in sorted(axes_of(given, len(x.shape) + len(given), "expand_dims")):
        x = tf.expand_dims(x, each)
    return x


def _permute_dims(x: Any, /, axes: tuple[int, ...]) -> Any:
    return tf.transpose(x, axes_of(tuple(axes), len(x.shape), "permute_dims"))


def _reshape(x: Any, /, shape: Any, *, copy: bool | None = None) -> Any:
    return tf.identity(tf.reshape(x, shape)) if copy else tf.reshape(x, shape)


def _take(x: Any, indices: Any, /, *, axis: int | None = None) -> Any:
    where = take_axis(axis, len(x.shape))
    size = tf.cast(tf.shape(x)[where], indices.dtype)
    return tf.gather(x, tf.where(tf.less(indices, 0), indices + size, indices), axis=where)


def _take_along_last(x: Any, indices: Any) -> Any:
    indices = tf.where(indices < 0, indices + x.shape[-1], indices)
    return tf.gather(x, indices, batch_dims=len(x.shape) - 1)


def _matmul(x1: Any, x2: Any, /) -> Any:
    first, second = _same_dtype([x1, x2])
    kept = first.dtype
    if kept.is_integer and kept not in (tf.int32, tf.int64):
        first, second = tf.cast(first, tf.int64), tf.cast(second, tf.int64)
    vectors = len(first.shape) == 1, len(second.shape) == 1
    first = first[None, :] if vectors[0] else first
    second = second[:, None] if vectors[1] else second
    found = tf.matmul(first, second)
    found = tf.squeeze(found, -1) if vectors[1] else found
    found = tf.squeeze(found, -1 if vectors[1] else -2) if vectors[0] else found
    return found if found.dtype is kept else tf.cast(found, kept)


def _nonzero(x: Any, /) -> tuple[Any, ...]:
    if not len(x.shape):
        msg = "nonzero was given a tensor without dimensions"
        raise ArgumentError(msg, "reshape it first: xp.reshape(x, (1,))")
    return tuple(tf.unstack(tf.where(_cast(x, tf.bool)), axis=1))


def _searchsorted(x1: Any, x2: Any, /, *, side: str = "left", sorter: Any = None) -> Any:
    need_choice(side, ("left", "right"), "searchsorted", "side")
    x1 = x1 if sorter is None else tf.gather(x1, sorter)
    x1, x2 = _same_dtype([x1, x2])
    found = tf.searchsorted(x1, tf.reshape(x2, [-1]), side=side, out_type=tf.int64)
    return tf.reshape(found, tf.shape(x2))


NATIVE: dict[str, Callable[..., Any]] = {
    **SAME,
    **{name: with_promotion(DT, scalar, _cast, fn, name) for name, fn in PROMOTED.items()},
    "max": _extreme("max", tf.reduce_max),
    "min": _extreme("min", tf.reduce_min),
    "_mean": mean,
    **{name: _on_floats(fn) for name, fn in {"ceil": tf.math.ceil, "floor": tf.floor}.items()},
    "round": _round,
    "abs": _abs,
    "negative": _negative,
    "sign": _sign,
    "imag": lambda x, /: tf.math.imag(x),
    "trunc": _trunc,
    "isfinite": _answer_for_integers(tf.math.is_finite, True),
    "isinf": _answer_for_integers(tf.math.is_inf, False),
    "isnan": _answer_for_integers(tf.math.is_nan, False),
    "sum": _accumulation("sum", tf.reduce_sum),
    "prod": _accumulation("prod", tf.reduce_prod),
    "all": _question("all", tf.reduce_all),
    "any": _question("any", tf.reduce_any),
    "argmax": index_of("argmax", tf.argmax),
    "argmin": index_of("argmin", tf.argmin),
    "where": _where,
    "concat": _concat,
    "stack": _stack,
    "expand_dims": _expand_dims,
    "permute_dims": _permute_dims,
    "reshape": _reshape,
    "broadcast_to": lambda x, /, shape: tf.broadcast_to(x, shape),
    "flip": lambda x, /, *, axis=None: tf.reverse(x, axes_of(axis, len(x.shape), "flip")),
    "take": _take,
    "matmul": _matmul,
    "nonzero": _nonzero,
    "searchsorted": _searchsorted,
    **extensions.FUNCTIONS,
    "cast": _cast,
    "shape": lambda x: tuple(x.shape),
    "scalar": scalar,
    "iota": lambda count, x: tf.range(count, dtype=tf.int32),
    "_take_along_last": _take_along_last,
    "_argsort": ordering.argsort,
    "_sort": ordering.sort,
    "_cumsum": lambda x, axis: tf.cumsum(x, axis),
    "_cumprod": lambda x, axis: tf.math.cumprod(x, axis),
}
"""The functions of the standard that TensorFlow has, with the signatures of the standard."""


class TensorflowNamespace(TensorflowCollectives):
    """The mixin for array-API namespaces."""

    def array_api(self) -> Mapping[str, Any]:
        found = {**complete(DT, NATIVE), **extensions.fft_functions()}
        return {
            name: fn if name in ABOUT_DTYPES else follow_tensors(self, name, fn, self._move_result, (AttributeError,))
            for name, fn in found.items()
        }
