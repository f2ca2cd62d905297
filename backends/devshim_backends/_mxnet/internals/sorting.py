"""Sorting with NaNs last, and with equal values in their order, which MXNet's functions do not keep.

MXNet sorts with comparisons that are false for NaNs, and then returns other numbers in the wrong order (1.9.1 and
2.0.0b1).
"""

from __future__ import annotations

from typing import Any

import mxnet as mx

from devshim_backends._mxnet.internals import many_axes
from devshim_backends._mxnet.internals.elementwise import COMPARISONS, DT, WIDE, fill, iota, name_of, wide

__all__ = ["argsort", "sort"]

_sum = many_axes.reduced(mx.np.sum)


def argsort(x: Any, axis: int) -> Any:
    """Return the stable ascending order of the elements along an axis."""
    return many_axes.along_rows(_order)(x.astype("int64" if name_of(x) in WIDE else "float64"), axis)


def _order(x: Any, axis: int) -> Any:
    """Return the order of int64 or float64: the ranks of the elements are computed, and inverted."""
    is_wide = name_of(x) in WIDE
    x = x.swapaxes(axis, -1)
    count = x.shape[-1]
    places = iota(count, x)
    late = mx.np.broadcast_to(places, x.shape)
    if not is_wide:
        missing = mx.np.isnan(x)
        x = fill(missing, float("inf"), x)
        late = late + missing.astype("int64") * count  # NaNs come after the infinities
    before = COMPARISONS["less"](mx.np.expand_dims(x, -2), mx.np.expand_dims(x, -1)).astype("int64")
    ties = COMPARISONS["equal"](mx.np.expand_dims(x, -2), mx.np.expand_dims(x, -1)).astype("int64")
    earlier = mx.np.less(mx.np.expand_dims(late, -2), mx.np.expand_dims(late, -1)).astype("int64")
    ranks = _sum(before + ties * earlier, axis=-1)
    found = _sum(
        mx.np.equal(mx.np.expand_dims(ranks, -2), places.reshape((count, 1))).astype("int64") * places, axis=-1
    )
    return found.swapaxes(axis, -1)


def sort(x: Any, axis: int) -> Any:
    """Return the elements along an axis in ascending order."""
    name = name_of(x)
    if not DT.is_kind(name, "real floating"):
        return wide(x, lambda t: many_axes.along_rows(mx.np.sort)(t, axis))
    if name == "float16":  # it has no kernel
        return sort(x.astype("float32"), axis).astype(name)
    return many_axes.along_rows(_sort_floats)(x, axis)


def _sort_floats(x: Any, axis: int) -> Any:
    missing = mx.np.isnan(x)
    found = mx.np.sort(fill(missing, float("inf"), x), axis=axis)
    last = mx.np.sort(missing.astype(name_of(x)), axis=axis)  # as many as there are NaNs
    return fill(last, float("nan"), found)
