"""Functions for shapes that MXNet's operators refuse: with many axes, and without elements.

The operators have limits between 4 and 6 axes. Some raise when their result is read, and the error can reach other
results (1.9.1, 2.0.0b1). A tensor has the same elements in the same order with fewer axes, so these functions compute
with such a tensor. Operators that reduce a tensor to one without elements fail in 1.9.1.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import mxnet as mx
import numpy as np

from devshim_backends._mxnet.internals.native import IS_2, is_recording

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["along_axis", "along_rows", "broadcast", "broadcast_both", "flip", "join", "places", "reduced", "stack"]
__all__ += ["round_to_even", "transpose", "where"]

_MOST = 5
"""The number of axes that all operators take but ``argsort`` as it is composed here."""
_MOST_SORTED = 3


def where(condition: Any, x1: Any, x2: Any) -> Any:
    """Return ``mx.np.where``; with many axes, the tensors have the shape of the condition."""
    shape = condition.shape
    if len(shape) <= _MOST:
        return _with_gradients(mx.np.where(condition, x1, x2))
    flat = (x.reshape((prod(shape),)) if hasattr(x, "handle") else x for x in (condition, x1, x2))
    return _with_gradients(mx.np.where(*flat)).reshape(shape)


def _with_gradients(x: Any) -> Any:
    """Return the result of ``where`` or ``concatenate``; while gradients are recorded, times one.

    If only functions without a gradient read it, such as a comparison after a reshape, MXNet computes its gradient
    from zeros of unknown shape, and the process ends (``where`` in 1.9.1 and 2.0.0b1, ``concatenate`` in 2.0.0b1).
    The gradient of a product has a shape.
    """
    return mx.np.multiply(x, mx.np.ones((1,) * len(x.shape), dtype=x.dtype)) if is_recording() else x


def round_to_even(x: Any) -> Any:
    """Return floats rounded to whole ones, halves to even ones, where ``mx.np.rint`` rounds them up."""
    low = mx.np.floor(x)
    part = x - low
    high = where(part == 0.5, low + mx.np.mod(low, 2), where(part > 0.5, low + 1, low))
    return where(mx.np.isfinite(x), high, x)


def transpose(x: Any, order: Sequence[int]) -> Any:
    """Return ``mx.np.transpose``; with many axes, one axis after the other moves to its place."""
    if len(order) <= _MOST:
        return mx.np.transpose(x, order)
    rest, sizes = list(range(len(order))), list(x.shape)
    for place, axis in enumerate(order):
        at = rest.index(axis)
        if at > place:
            parts = prod(sizes[:place]), prod(sizes[place:at]), sizes[at], prod(sizes[at + 1 :])
            rest.insert(place, rest.pop(at))
            sizes.insert(place, sizes.pop(at))
            x = x.reshape(parts)
            x = mx.np.transpose(x, (0, 2, 1, 3)) if parts[1] > 1 and parts[2] > 1 else x
    return x.reshape(tuple(sizes))


def broadcast(x: Any, shape: tuple[int, ...]) -> Any:
    """Return ``mx.np.broadcast_to``; with many axes, one axis after the other gets its length."""
    count = len(shape) - len(x.shape)
    if len(shape) <= _MOST or count < 0:
        return mx.np.broadcast_to(x, shape)
    sizes = [1] * count + list(x.shape)
    for i, size in enumerate(shape):
        if sizes[i] != size:
            parts = prod(sizes[:i]), sizes[i], prod(sizes[i + 1 :])
            x = mx.np.broadcast_to(x.reshape(parts), (parts[0], size, parts[2]))
            sizes[i] = size
    return x.reshape(tuple(shape))


def broadcast_both(x1: Any, x2: Any) -> tuple[Any, Any]:
    """Return two tensors, with one shape if they have many axes: operators broadcast few."""
    first, second = x1.shape, x2.shape
    if first == second or max(len(first), len(second)) <= _MOST:
        return x1, x2
    shape = np.broadcast_shapes(first, second)
    return broadcast(x1, shape), broadcast(x2, shape)


def flip(x: Any, axes: Sequence[int]) -> Any:
    """Return a tensor whose elements are in reverse order along axes."""
    shape = x.shape
    if len(shape) <= _MOST:
        return x[tuple(slice(None, None, -1 if i in axes else None) for i in range(len(shape)))]
    for i in axes:
        x = x.reshape((prod(shape[:i]), shape[i], prod(shape[i + 1 :])))[:, ::-1]
    return x.reshape(shape)


def join(xs: Sequence[Any], axis: int) -> Any:
    """Return tensors of one dtype, concatenated along an axis, which is a number from 0."""
    shape = xs[0].shape
    if len(shape) <= _MOST:
        return _concatenated(xs, axis)
    before, after = shape[:axis], shape[axis + 1 :]
    for x in xs:
        if (*x.shape[:axis], *x.shape[axis + 1 :]) != (*before, *after):
            return mx.np.concatenate(xs, axis)  # MXNet's own error
    found = _concatenated([x.reshape((prod(before), x.shape[axis], prod(after))) for x in xs], 1)
    return found.reshape((*before, found.shape[1], *after))


def _concatenated(xs: Sequence[Any], axis: int) -> Any:
    found = mx.np.concatenate(xs, axis)
    return _with_gradients(found) if IS_2 else found


def stack(xs: Sequence[Any], axis: int) -> Any:
    """Return tensors of one dtype, stacked along a new axis."""
    count = len(xs[0].shape) + 1
    if count <= _MOST or not -count <= axis < count or any(x.shape != xs[0].shape for x in xs):
        return mx.np.stack(xs, axis)
    return join([mx.np.expand_dims(x, axis) for x in xs], axis % count)


def places(x: Any) -> list[Any]:
    """Return the indices of the elements that are not zero, for each axis."""
    shape = x.shape
    if len(shape) <= _MOST:
        return list(mx.np.nonzero(x))
    rest, found = mx.np.nonzero(x.reshape((prod(shape),)))[0], []
    for size in reversed(shape):
        quotient = mx.np.floor(mx.np.true_divide(rest.astype("float64"), size)).astype("int64")
        found.append(mx.np.subtract(rest, mx.np.multiply(quotient, size)))
        rest = quotient
    return found[::-1]


def along_axis(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of a tensor along an axis that computes with three axes if the tensor has many.

    The other axes and their order stay, or the results lack the axis.
    """

    def compute(x: Any, axis: int, **options: Any) -> Any:
        shape = x.shape
        if len(shape) <= _MOST:
            return fn(x, axis=axis, **options)
        before, after = shape[: axis % len(shape)], shape[axis % len(shape) + 1 :]

        def merge(each: Any) -> Any:
            size = each.shape[axis] if hasattr(each, "handle") else None
            return each if size is None else each.reshape((prod(before), size, prod(after)))

        found = fn(merge(x), axis=1, **{key: merge(each) for key, each in options.items()})
        if isinstance(found, tuple):
            return tuple(each.reshape((*before, *after)) for each in found)
        return found.reshape((*before, found.shape[1], *after))

    return compute


def along_rows(fn: Callable[[Any, int], Any]) -> Callable[[Any, int], Any]:
    """Return a function of a tensor and an axis that computes with a matrix if the tensor has many axes."""

    def compute(x: Any, axis: int) -> Any:
        shape = x.shape
        if len(shape) <= _MOST_SORTED:
            return fn(x, axis)
        order = [*(i for i in range(len(shape)) if i != axis % len(shape)), axis % len(shape)]
        moved = transpose(x, order)
        rows = moved.reshape((prod(moved.shape[:-1]), moved.shape[-1]))
        return transpose(fn(rows, 1).reshape(moved.shape), np.argsort(order).tolist())

    return compute


def reduced(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a reduction that keeps the dtype, and returns a tensor without elements without the operator."""

    def compute(x: Any, axis: Any, keepdims: bool = False) -> Any:
        shape = x.shape
        if 0 not in shape and len(shape) <= _MOST:
            return fn(x, axis=axis, keepdims=keepdims)
        final = np.broadcast_to(np.empty((), bool), shape).any(axis, keepdims=keepdims).shape
        if 0 in final:
            return x.reshape(final)
        gone = sorted({i % len(shape) for i in (axis if isinstance(axis, tuple) else (axis,))})
        kept = [i for i in range(len(shape)) if i not in gone]
        rows = transpose(x, [*kept, *gone]).reshape((prod(shape[i] for i in kept), prod(shape[i] for i in gone)))
        return fn(rows, axis=1, keepdims=False).reshape(final)

    return compute
