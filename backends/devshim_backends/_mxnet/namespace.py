"""The array-API namespace of MXNet: aliases of ``mx.np``, in both releases.

* Functions run with NumPy's meaning of the shapes ``()`` and ``(0, 3)``, which is a setting of the thread.
* In a block that 1.9 compiles, tensors are symbols without shape and dtype: only functions that need neither work.
"""

from __future__ import annotations

from functools import partial, wraps
from typing import TYPE_CHECKING, Any

import mxnet as mx
import numpy as np

from devshim.contract.namespaces import ABOUT_DTYPES
from devshim.errors import ArgumentError
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
from devshim_backends._mxnet import extensions
from devshim_backends._mxnet.internals import bfloat16, elementwise, many_axes, slices, sorting, symbols, whole_numbers
from devshim_backends._mxnet.internals.elementwise import (
    DT,
    RARE,
    WIDE,
    cast,
    name_of,
    np_function,
    scalar,
    wide,
    with_kernel_dtype,
)
from devshim_backends._mxnet.internals.native import IS_2, set_numpy_shapes, unset_numpy_shapes
from devshim_backends._mxnet.tensors import MxnetTensors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def _reduction(call: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    def reduction(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
        axes = axes_of(axis, len(x.shape), call)
        return wide(x, lambda t: fn(t, axis=axes, keepdims=keepdims)) if axes else x.copy()

    return reduction


def _extreme(call: str) -> Callable[..., Any]:
    fn = many_axes.reduced(np_function(call))

    def extreme(x: Any, axis: Any, keepdims: bool) -> Any:
        need_elements(x.shape, axis, call)
        return fn(x, axis=axis, keepdims=keepdims)

    return extreme


def _accumulation(call: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    def reduction(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
        axes = axes_of(axis, len(x.shape), call)
        wanted = DT.sum_dtype(x, dtype).name
        via = RARE.get(wanted, wanted)
        kept = name_of(x) == via
        if not axes:
            return x.copy() if kept else cast(x, via).astype(wanted, copy=False)
        found = fn(x if kept else cast(x, via), axis=axes, keepdims=keepdims)
        return found if name_of(found) == wanted else found.astype(wanted)

    return reduction


def _question(call: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    def reduction(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
        axes = axes_of(axis, len(x.shape), call)
        x = mx.np.not_equal(x.astype("int32") if name_of(x) == "bool" else x, 0)
        if not axes:
            return x
        return mx.np.equal(fn(x.astype("float32"), axis=axes, keepdims=keepdims), 1)

    return reduction


def _mean(x: Any, axis: Any, keepdims: bool) -> Any:
    if 0 in x.shape:  # 1.9 returns 0
        return mx.np.full(np.empty(x.shape, bool).any(axis, keepdims=keepdims).shape, float("nan"), dtype=x.dtype)
    dtype = x.dtype if DT.is_kind(x, "real floating") else None  # MXNet 2.0 makes float32 of float64 without it
    return many_axes.reduced(partial(mx.np.mean, dtype=dtype))(x, axis, keepdims)


def _prod(x: Any, axis: Any, keepdims: bool) -> Any:
    if 0 in x.shape:
        return mx.np.ones(np.empty(x.shape, bool).all(axis, keepdims=keepdims).shape, dtype=x.dtype)
    if DT.isdtype(name_of(x), "integral"):
        return whole_numbers.product(x, axis, keepdims)
    return many_axes.reduced(mx.np.prod)(x.astype("float64"), axis, keepdims).astype(x.dtype)


_sum = many_axes.reduced(mx.np.sum)


def _any(x: Any, axis: Any, keepdims: bool) -> Any:
    return mx.np.greater(_sum(x, axis=axis, keepdims=keepdims), 0).astype("int32")


def _place_of(call: str, x: Any, axis: int) -> Any:
    return np_function(call)(x if DT.is_kind(x, "real floating") else x.astype("float64"), axis=axis)


def _first_of(call: str, x: Any, axis: int) -> Any:
    """Return the first place of the largest or smallest integer, which float64 would round."""
    x = x.astype("int64", copy=False)
    chosen = np_function(call.removeprefix("arg"))(x, axis=axis, keepdims=True)
    return mx.np.argmax(elementwise.COMPARISONS["equal"](x, chosen).astype("float32"), axis=axis)


def _index_of(call: str) -> Callable[..., Any]:
    def find(x: Any, /, *, axis: int | None = None, keepdims: bool = False) -> Any:
        count = len(x.shape)
        need_elements(x.shape, axes_of(axis, count, call), call)
        where = 0 if axis is None else axis_of(axis, count, call)
        x = x.reshape((-1,)) if axis is None else x
        found = (_first_of if name_of(x) in WIDE else _place_of)(call, x, where).astype("int64")
        if keepdims:
            return found.reshape((1,) * count) if axis is None else mx.np.expand_dims(found, where)
        return found

    return find


def _where(condition: Any, x1: Any, x2: Any, /) -> Any:
    name = DT.result_name(x1, x2)
    via = RARE.get(name, name)
    xs = [x.astype(via) if hasattr(x, "dtype") else scalar(x, via, condition) for x in (x1, x2)]
    shape = np.broadcast_shapes(condition.shape, *(x.shape for x in xs))
    found = many_axes.where(*(many_axes.broadcast(x, shape) for x in (condition.astype("int32"), *xs)))
    return cast(found, name) if via != name else found


def _same_dtype(arrays: Any) -> list[Any]:
    if len({name_of(x) for x in arrays}) == 1:
        return list(arrays)
    name = DT.result_name(*arrays)
    return [x.astype(name, copy=False) for x in arrays]


def _concat(arrays: Any, /, *, axis: int | None = 0) -> Any:
    xs = _same_dtype(need_tensors(arrays, "concat"))
    if axis is None:
        xs, axis = [x.reshape((-1,)) for x in xs], 0
    return with_kernel_dtype(many_axes.join)(xs, axis_of(axis, len(xs[0].shape), "concat"))


def _stack(arrays: Any, /, *, axis: int = 0) -> Any:
    xs = _same_dtype(need_tensors(arrays, "stack"))
    return with_kernel_dtype(many_axes.stack)(xs, axis_of(axis, len(xs[0].shape) + 1, "stack"))


def _permute_dims(x: Any, /, axes: tuple[int, ...]) -> Any:
    order = axes_of(tuple(axes), len(x.shape), "permute_dims")
    return with_kernel_dtype(many_axes.transpose)(x, order) if order else x


def _reshape(x: Any, /, shape: Any, *, copy: bool | None = None) -> Any:
    found = mx.np.reshape(x, shape)
    return found.copy() if copy else found


def _take(x: Any, indices: Any, /, *, axis: int | None = None) -> Any:
    where = take_axis(axis, len(x.shape))
    return with_kernel_dtype(mx.np.take)(x, indices, axis=where, mode="wrap")


def _take_along_last(x: Any, indices: Any) -> Any:
    """Return one element of each row, which MXNet can take natively."""
    if indices.shape[-1] != 1 or name_of(x) in RARE or 0 in x.shape:
        return None
    return mx.npx.pick(x, indices, axis=-1, mode="wrap", keepdims=True)


def _matmul(x1: Any, x2: Any, /) -> Any:
    first, second = _same_dtype([x1, x2])
    kept = name_of(first)
    vectors = len(first.shape) == 1, len(second.shape) == 1
    first = mx.np.expand_dims(first, 0) if vectors[0] else first
    second = mx.np.expand_dims(second, 1) if vectors[1] else second
    if DT.isdtype(kept, "integral"):
        found = whole_numbers.matmul(first.astype("int64"), second.astype("int64"), elementwise.BITS[kept])
    else:
        found = elementwise.computed_in_float32(mx.np.matmul, on_host=True)(first, second)
    found = found.squeeze(-1) if vectors[1] else found
    found = found.squeeze(-1 if vectors[1] else -2) if vectors[0] else found
    return found.astype(kept, copy=False)


def _nonzero(x: Any, /) -> tuple[Any, ...]:
    if not len(x.shape):
        msg = "nonzero was given a tensor without dimensions"
        raise ArgumentError(msg, "reshape it first: xp.reshape(x, (1,))")
    name = name_of(x)
    return tuple(many_axes.places(x.astype(RARE[name]) if name in RARE else x))


def _searchsorted(x1: Any, x2: Any, /, *, side: str = "left", sorter: Any = None) -> Any:
    need_choice(side, ("left", "right"), "searchsorted", "side")
    x1, x2 = _same_dtype([x1 if sorter is None else _take(x1, sorter), x2])
    below = elementwise.FUNCTIONS["less" if side == "left" else "less_equal"]
    return _sum(below(x1, mx.np.expand_dims(x2, -1)).astype("int64"), -1)


def _flip(x: Any, /, *, axis: Any = None) -> Any:
    return with_kernel_dtype(many_axes.flip)(x, axes_of(axis, len(x.shape), "flip"))


def _cumprod(x: Any, axis: int) -> Any:
    before = (slice(None),) * axis
    parts = [x[(*before, i)] for i in range(x.shape[axis])]
    for i in range(1, len(parts)):
        parts[i] = mx.np.multiply(parts[i - 1], parts[i])
    return many_axes.stack(parts, axis) if parts else x


NATIVE: dict[str, Callable[..., Any]] = {
    **{name: _reduction(name, _extreme(name)) for name in ("max", "min")},
    "_mean": _reduction("mean", _mean),
    **{name: _index_of(name) for name in ("argmax", "argmin")},
    **elementwise.FUNCTIONS,
    **extensions.FUNCTIONS,
    "sum": _accumulation("sum", _sum),
    "prod": _accumulation("prod", _prod),
    "all": _question("all", _prod),
    "any": _question("any", _any),
    "where": _where,
    "concat": _concat,
    "stack": _stack,
    "permute_dims": _permute_dims,
    "reshape": _reshape,
    "broadcast_to": lambda x, /, shape: with_kernel_dtype(many_axes.broadcast)(x, tuple(shape)),
    "flip": _flip,
    "take": _take,
    "matmul": _matmul,
    "nonzero": _nonzero,
    "searchsorted": _searchsorted,
    "cast": cast,
    "shape": lambda x: tuple(x.shape),
    "scalar": scalar,
    "iota": elementwise.iota,
    "_take_along_last": _take_along_last,
    "_argsort": sorting.argsort,
    "_sort": sorting.sort,
    "_cumsum": with_kernel_dtype(lambda x, axis: mx.np.cumsum(x, axis=axis)),
    "_cumprod": with_kernel_dtype(many_axes.along_axis(_cumprod)),
}
"""The functions of the standard that MXNet has, with the signatures of the standard."""

MISSING = frozenset({"imag", "nextafter", "linalg.eig", "linalg.eigvals"} | ({"linalg.qr"} if not IS_2 else set()))
"""Functions for which MXNet has no operator: it lacks complex numbers, and 1.9 lacks a usable qr."""

REFUSALS = (AssertionError, AttributeError, TypeError, ValueError)
"""The exceptions that MXNet's functions raise for a NumPy array; each function raises another one."""


class MxnetNamespace(MxnetTensors):
    """The mixin for array-API namespaces."""

    def array_api(self) -> Mapping[str, Any]:
        return {
            name: fn
            if name in ABOUT_DTYPES
            else follow_tensors(self, name, _with_numpy_shapes(name, fn), refusals=REFUSALS)
            for name, fn in complete(DT, NATIVE, MISSING).items()
        }


def _with_numpy_shapes(name: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs with NumPy's shapes, and takes symbols where it can, and bfloat16."""
    fn = slices.sliced(name, fn) if name in slices.AXES else fn

    @wraps(fn)
    def compute(*args: Any, **options: Any) -> Any:
        if not IS_2 and symbols.among(args):
            return symbols.call(name, args, options)
        before = set_numpy_shapes()  # a context would call two more functions
        try:
            if options.get("dtype") is not None and DT.name(options["dtype"]) == "bfloat16":
                return bfloat16.cast(compute(*args, **{**options, "dtype": "float32"}))
            if bfloat16.among(args):
                return bfloat16.call(name, fn, args, options)
            return fn(*args, **options)
        finally:
            if not before:
                unset_numpy_shapes()

    return compute
