"""Reductions of the standard, in terms of others.

The standard does not define the mean, the deviation and the sum of tensors that do not contain numbers. Here they
are NumPy's: an accuracy is the mean of a comparison. The frameworks' own would round the mean of integers, and give the
sum of bools as a bool.
"""

from __future__ import annotations

from math import prod as product
from typing import Any

from devshim.contract.namespaces import missing_axis
from devshim_backends._array_api.dtypes import KINDS
from devshim_backends._array_api.manipulation import axes_of, axis_of

_EXACT = frozenset((*KINDS["bool"], *KINDS["integral"]))
"""The dtypes whose mean is computed in the default floating dtype."""

_HALF = frozenset({"float16", "bfloat16"})
"""The dtypes in which sums overflow soon: their statistics are computed in float32, and cast back."""


def mean(xp: Any, x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    name = xp.dtypes.name(x)
    if name in _HALF:
        return _through_float32(xp, mean, x, axis=axis, keepdims=keepdims)
    return xp._mean(to_floating(xp, x) if name in _EXACT else x, axis=axis, keepdims=keepdims)


def to_floating(xp: Any, x: Any) -> Any:
    """Return integers and bools in the default floating dtype, and other tensors unchanged."""
    dtypes = xp.dtypes
    exact = dtypes.name(x) in _EXACT
    return xp.astype(x, dtypes.own[dtypes.result_name(x, 1.0)]) if exact else x


def _through_float32(xp: Any, fn: Any, x: Any, **options: Any) -> Any:
    return xp.astype(fn(xp, xp.astype(x, xp.dtypes.own["float32"]), **options), xp.dtypes.get(xp.dtypes.name(x)))


def var(xp: Any, x: Any, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Any:
    if xp.dtypes.name(x) in _HALF:
        return _through_float32(xp, var, x, axis=axis, correction=correction, keepdims=keepdims)
    shape = xp.shape(x)
    axes = axes_of(axis, len(shape), "var")
    count = product(shape[i] for i in axes)
    x = to_floating(xp, x)
    centred = xp.subtract(x, xp.mean(x, axis=axis, keepdims=True))
    total = xp.sum(xp.multiply(centred, centred), axis=axis, keepdims=keepdims)
    return xp.divide(total, float(max(count - correction, 0)))


def std(xp: Any, x: Any, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Any:
    if xp.dtypes.name(x) in _HALF:
        return _through_float32(xp, std, x, axis=axis, correction=correction, keepdims=keepdims)
    return xp.sqrt(var(xp, x, axis=axis, correction=correction, keepdims=keepdims))


def count_nonzero(xp: Any, x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    found = x if xp.dtypes.is_kind(x, "bool") else xp.not_equal(x, 0)
    return xp.sum(xp.astype(found, xp.dtypes.own["int64"]), axis=axis, keepdims=keepdims)


def cumulative_sum(
    xp: Any, x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Any:
    return _cumulative(xp, "cumulative_sum", xp._cumsum, 0, x, axis, dtype, include_initial)


def cumulative_prod(
    xp: Any, x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Any:
    return _cumulative(xp, "cumulative_prod", xp._cumprod, 1, x, axis, dtype, include_initial)


def _cumulative(xp: Any, call: str, fn: Any, first: int, x: Any, axis: Any, dtype: Any, include_initial: bool) -> Any:
    shape = xp.shape(x)
    if axis is None and len(shape) != 1:
        raise missing_axis(call, len(shape))
    where = axis_of(0 if axis is None else axis, len(shape), call)
    found = fn(xp.astype(x, xp.dtypes.sum_dtype(x, dtype), copy=False), where)
    if include_initial:
        start = xp.broadcast_to(xp.number(first, found), (*shape[:where], 1, *shape[where + 1 :]))
        found = xp.concat([start, found], axis=where)
    return found


def diff(xp: Any, x: Any, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None) -> Any:
    where = axis_of(axis, len(xp.shape(x)), "diff")
    parts = [part for part in (prepend, x, append) if part is not None]
    x = xp.concat(parts, axis=where) if len(parts) > 1 else x
    before = (slice(None),) * where
    minus = xp.logical_xor if xp.dtypes.is_kind(x, "bool") else xp.subtract
    for _ in range(n):
        x = minus(x[(*before, slice(1, None))], x[(*before, slice(None, -1))])
    return x


FUNCTIONS = (mean, var, std, count_nonzero, cumulative_sum, cumulative_prod, diff)
"""The functions; the table that they are given has the others."""
