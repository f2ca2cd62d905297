"""The array-API namespace of PaddlePaddle: aliases of its functions, which compute where their arguments are.

Kernels that a plug-in device lacks fall back to the host, and may leave their result there: it is moved back.
Paddle's functions take tensors of one dtype, and some silently accept axes that do not exist: both are checked here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import paddle

from devshim.contract.namespaces import ABOUT_DTYPES
from devshim.errors import ArgumentError
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
from devshim_backends._paddle import extensions
from devshim_backends._paddle.internals import statistics
from devshim_backends._paddle.internals.kernels import (
    DT,
    HALF,
    WIDE,
    argsort,
    cast,
    cumulative,
    floor_divide,
    in_wider,
    iota,
    logarithm,
    name_of,
    power,
    remainder,
    scalar,
)
from devshim_backends._paddle.tensors import PaddleTensors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def _on_floats(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a rounding function that returns integers unchanged, as the standard requires."""
    return lambda x, /: paddle.assign(x) if DT.is_kind(x, "integral") else fn(x)


def _answer_for_integers(fn: Callable[..., Any], answer: bool) -> Callable[..., Any]:
    def ask(x: Any, /) -> Any:
        if DT.is_kind(x, "complex floating"):
            parts = fn(paddle.real(x)), fn(paddle.imag(x))
            return paddle.logical_and(*parts) if answer else paddle.logical_or(*parts)
        return fn(x) if DT.is_kind(x, "real floating") else paddle.full(x.shape, answer, "bool")

    return ask


def _bitwise(ints: Callable[..., Any], bools: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *xs: (bools if name_of(xs[0]) == "bool" else ints)(*xs)


def _reduction(call: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    def reduce(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
        axes = list(axes_of(axis, len(x.shape), call))
        return in_wider(lambda t: fn(t, axis=axes, keepdim=keepdims) if axes else paddle.assign(t))(x)

    return reduce


def _extreme(call: str) -> Callable[..., Any]:
    fn = statistics.join_axes(getattr(paddle, call))

    def extreme(x: Any, axis: Any, keepdim: bool) -> Any:
        need_elements(x.shape, axis, call)
        return fn(x, axis=axis, keepdim=keepdim)

    return extreme


def _accumulation(call: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    def reduce(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
        axes, wanted = list(axes_of(axis, len(x.shape), call)), DT.sum_dtype(x, dtype)
        name = DT.name(wanted)
        x = x if name_of(x) == name else paddle.cast(x, name)
        found = in_wider(lambda t: fn(t, axis=axes, keepdim=keepdims) if axes else paddle.assign(t))(x)
        return found if name_of(found) == name else paddle.cast(found, name)

    return reduce


def _question(call: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    def reduce(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
        axes = list(axes_of(axis, len(x.shape), call))
        x = paddle.cast(x, "bool")
        return fn(x, axis=axes, keepdim=keepdims) if axes else x

    return reduce


def _index_of(call: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    def find(x: Any, /, *, axis: int | None = None, keepdims: bool = False) -> Any:
        count = len(x.shape)
        need_elements(x.shape, axes_of(axis, count, call), call)
        x = paddle.cast(x, WIDE.get(name_of(x), name_of(x)))
        if axis is None:
            found = fn(paddle.reshape(x, [-1]), axis=0)
            return paddle.reshape(found, [1] * count if keepdims else [])
        return fn(x, axis=axis_of(axis, count, call), keepdim=keepdims)

    return find


def _where(condition: Any, x1: Any, x2: Any, /) -> Any:
    def choose(a: Any, b: Any) -> Any:
        shapes = [tuple(x.shape) for x in (condition, a, b)]
        if len(set(shapes)) > 1:
            shape = list(_broadcast_shape(*shapes))
            return paddle.where(*(paddle.expand(x, shape) for x in (condition, a, b)))
        return paddle.where(condition, a, b)

    return with_promotion(DT, scalar, cast, in_wider(choose, dtypes=WIDE | HALF))(x1, x2)


def _broadcast_shape(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    found: tuple[int, ...] = ()
    for shape in shapes:
        found = tuple(paddle.broadcast_shape(list(found), list(shape)))
    return found


def _same_dtype(arrays: Any) -> list[Any]:
    if all(x.dtype == arrays[0].dtype for x in arrays):
        return list(arrays)
    name = DT.result_name(*arrays)
    return [x if name_of(x) == name else paddle.cast(x, name) for x in arrays]


def _concat(arrays: Any, /, *, axis: int | None = 0) -> Any:
    xs = _same_dtype(need_tensors(arrays, "concat"))
    if axis is None:
        xs, axis = [paddle.reshape(x, [-1]) for x in xs], 0
    where = axis_of(axis, len(xs[0].shape), "concat")
    return in_wider(lambda *ts: paddle.concat(list(ts), where))(*xs)


def _stack(arrays: Any, /, *, axis: int = 0) -> Any:
    xs = _same_dtype(need_tensors(arrays, "stack"))
    where = axis_of(axis, len(xs[0].shape) + 1, "stack")
    return in_wider(lambda *ts: paddle.stack(list(ts), where))(*xs)


def _permute_dims(x: Any, /, axes: tuple[int, ...]) -> Any:
    order = list(axes_of(tuple(axes), len(x.shape), "permute_dims"))
    return paddle.transpose(x, order) if order else x


def _reshape(x: Any, /, shape: Any, *, copy: bool | None = None) -> Any:
    found = paddle.reshape(x, [shape] if isinstance(shape, int) else list(shape))
    return paddle.assign(found) if copy else found


def _flip(x: Any, /, *, axis: Any = None) -> Any:
    return in_wider(lambda t: paddle.flip(t, axes_of(axis, len(x.shape), "flip")), dtypes=WIDE | HALF)(x)


def _take(x: Any, indices: Any, /, *, axis: int | None = None) -> Any:
    where = take_axis(axis, len(x.shape))
    indices = paddle.where(indices < 0, indices + x.shape[where], indices)
    return in_wider(lambda t: paddle.index_select(t, indices, where))(x)


def _take_along_last(x: Any, indices: Any) -> Any:
    if name_of(x) not in ("float32", "float64", "int32", "int64") or name_of(indices) not in ("int32", "int64"):
        return None  # other dtypes lack kernels
    indices = paddle.where(indices < 0, indices + x.shape[-1], indices)
    return paddle.take_along_axis(x, indices, axis=len(x.shape) - 1, broadcast=False)


def _matmul(x1: Any, x2: Any, /) -> Any:
    first, second = _same_dtype([x1, x2])
    kept = name_of(first)
    if DT.isdtype(kept, "integral"):
        return extensions.integer_matmul(first, second, kept)
    return paddle.matmul(first, second)


def _nonzero(x: Any, /) -> tuple[Any, ...]:
    if not len(x.shape):
        msg = "nonzero was given a tensor without dimensions"
        raise ArgumentError(msg, "reshape it first: xp.reshape(x, (1,))")
    found = paddle.nonzero(paddle.cast(x, "bool"))
    return tuple(found[:, i] for i in range(len(x.shape)))


def _searchsorted(x1: Any, x2: Any, /, *, side: str = "left", sorter: Any = None) -> Any:
    need_choice(side, ("left", "right"), "searchsorted", "side")
    x1, x2 = _same_dtype([x1 if sorter is None else paddle.index_select(x1, sorter), x2])
    if name_of(x1) in ("int8", "int16", "uint8"):  # it has no kernel for them
        x1, x2 = cast(x1, "int32"), cast(x2, "int32")
    return paddle.searchsorted(x1, x2, right=side == "right")


_FLOATS = ["acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "exp", "expm1", "log", "log1p"]
_FLOATS += ["sin", "sinh", "sqrt", "tan", "tanh"]


SAME = {
    **{name: in_wider(getattr(paddle, name), same=False) for name in _FLOATS},
    **{name: getattr(paddle, name) for name in ("imag", "logical_not")},
    "conj": lambda x, /: paddle.conj(x) if DT.is_kind(x, "complex floating") else paddle.assign(x),
    "log2": logarithm(paddle.log2, 2),
    "log10": logarithm(paddle.log10, 10),
    "bitwise_invert": _bitwise(paddle.bitwise_not, paddle.logical_not),
    **{name: in_wider(getattr(paddle, name)) for name in ("abs", "sign")},
    **{name: _on_floats(getattr(paddle, name)) for name in ("ceil", "floor", "round", "trunc")},
    "negative": in_wider(paddle.neg),
    "real": lambda x, /: paddle.real(x) if DT.is_kind(x, "complex floating") else paddle.assign(x),
}
"""Functions of one tensor."""

PROMOTED = {
    **{name: in_wider(getattr(paddle, name)) for name in ("add", "subtract", "multiply", "maximum", "minimum")},
    "floor_divide": in_wider(floor_divide),
    "remainder": in_wider(remainder),
    **{name: in_wider(getattr(paddle, name), same=False) for name in ("less_than", "less_equal", "greater_equal")},
    "less": in_wider(paddle.less_than, same=False),
    "greater": in_wider(paddle.greater_than, same=False),
    "equal": in_wider(paddle.equal, same=False),
    "not_equal": in_wider(paddle.not_equal, same=False),
    **{name: getattr(paddle, name) for name in ("atan2", "divide", "logical_and", "logical_or", "logical_xor")},
    **{name: getattr(paddle, name) for name in ("nextafter", "copysign") if hasattr(paddle, name)},
    "bitwise_and": _bitwise(paddle.bitwise_and, paddle.logical_and),
    "bitwise_or": _bitwise(paddle.bitwise_or, paddle.logical_or),
    "bitwise_xor": _bitwise(paddle.bitwise_xor, paddle.logical_xor),
    "bitwise_left_shift": getattr(paddle, "bitwise_left_shift", None),
    "bitwise_right_shift": getattr(paddle, "bitwise_right_shift", None),
}
"""Functions of two tensors, which get tensors of one dtype."""
PROMOTED.pop("less_than")

NATIVE: dict[str, Callable[..., Any]] = {
    **SAME,
    **extensions.FUNCTIONS,
    **{name: with_promotion(DT, scalar, cast, fn, name) for name, fn in PROMOTED.items() if fn is not None},
    "pow": power,
    **{name: _reduction(name, _extreme(name)) for name in ("max", "min")},
    "_mean": _reduction("mean", paddle.mean),
    **{name: _accumulation(name, getattr(paddle, name)) for name in ("sum", "prod")},
    **{name: _question(name, getattr(paddle, name)) for name in ("all", "any")},
    **{name: _index_of(name, getattr(paddle, name)) for name in ("argmax", "argmin")},
    "isfinite": _answer_for_integers(paddle.isfinite, True),
    "isinf": _answer_for_integers(paddle.isinf, False),
    "isnan": _answer_for_integers(paddle.isnan, False),
    "where": _where,
    "concat": _concat,
    "stack": _stack,
    "permute_dims": _permute_dims,
    "reshape": _reshape,
    "broadcast_to": lambda x, /, shape: in_wider(lambda t: paddle.expand(t, list(shape)))(x),
    "flip": _flip,
    "take": _take,
    "matmul": _matmul,
    "nonzero": _nonzero,
    "searchsorted": _searchsorted,
    "cast": cast,
    "shape": lambda x: tuple(x.shape),
    "scalar": scalar,
    "iota": iota,
    "_take_along_last": _take_along_last,
    "_argsort": argsort,
    "_sort": lambda x, axis: in_wider(lambda t: paddle.sort(t, axis=axis))(x),
    **{f"_{name}": cumulative(getattr(paddle, name)) for name in ("cumsum", "cumprod")},
}
"""The functions of the standard that PaddlePaddle has, with the signatures of the standard."""


class PaddleNamespace(PaddleTensors):
    """The mixin for array-API namespaces."""

    def array_api(self) -> Mapping[str, Any]:
        found = complete(DT, NATIVE)
        return {
            name: fn
            if name in ABOUT_DTYPES
            else follow_tensors(self, name, fn, self._to_first, (TypeError, ValueError))
            for name, fn in found.items()
        }

    def _to_first(self, result: Any, first: Any) -> Any:
        """Return a result on the device of the first argument."""
        if not self.is_tensor(type(result)) or self.device_of(result) is self.device_of(first):
            return result
        return self.copy_to(result, self.device_of(first))
