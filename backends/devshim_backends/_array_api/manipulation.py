"""Functions of the standard that rearrange tensors, in terms of others."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from devshim.contract.namespaces import missing_axis, whole_axis
from devshim.errors import ArgumentError


def axis_of(axis: int, count: int, call: str) -> int:
    """Return an axis as a number from 0, after checking that it exists."""
    if type(axis) is not int:
        axis = whole_axis(axis, call)
    if not -count <= axis < count:
        msg = f"{call} was given axis {axis} for a tensor of {dimensions(count)}"
        raise ArgumentError(msg, f"an axis is between {-count} and {count - 1}" if count else "leave axis out")
    return axis % count


def take_axis(axis: int | None, count: int) -> int:
    """Return the axis of ``take``, which is optional for vectors only."""
    if axis is None and count != 1:
        raise missing_axis("take", count)
    return axis_of(0 if axis is None else axis, count, "take")


def dimensions(count: int) -> str:
    """Return a number of dimensions in words."""
    return f"{count} dimension" if count == 1 else f"{count} dimensions"


def need_elements(shape: Any, axes: Any, call: str) -> None:
    """Raise an error if a tensor has no elements along the axes that a function, such as max, reduces."""
    if 0 in shape and any(shape[i] == 0 for i in axes):
        msg = f"{call} was given a tensor of shape {tuple(shape)}, which has no elements along the axis"
        raise ArgumentError(msg, "check that the tensor is not empty first")


def need_tensors(arrays: Any, call: str) -> list[Any]:
    """Return tensors as a list, after checking that there are any."""
    found = list(arrays)
    if not found:
        msg = f"{call} was given no tensors"
        raise ArgumentError(msg, f"pass at least one: xp.{call}([x])")
    return found


def need_choice(value: Any, choices: tuple[str, str], call: str, name: str) -> None:
    """Raise an error if an option is not one of its two values."""
    if value not in choices:
        msg = f"{call} was given {name}={value!r}"
        raise ArgumentError(msg, f"pass {name}={choices[0]!r} or {name}={choices[1]!r}")


def axes_of(axis: Any, count: int, call: str) -> tuple[int, ...]:
    """Return one axis, several or None for all as a tuple of numbers from 0."""
    if axis is None:
        return tuple(range(count))
    if type(axis) is int:
        return (axis_of(axis, count, call),)
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    found = tuple(axis_of(each, count, call) for each in given)
    if len(set(found)) < len(found):
        msg = f"{call} was given an axis twice: {axis}"
        raise ArgumentError(msg, "name each axis once")
    return found


def astype(xp: Any, x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
    if device is not None:
        msg = "xp.astype was given a device, and it casts a tensor on the device where the tensor is"
        raise ArgumentError(msg, "move the result: ds.place(xp.astype(x, dtype), device)")
    wanted = xp.dtypes.get(dtype)
    return x if not copy and xp.dtypes.get(x) == wanted else xp.cast(x, wanted)


def broadcast_shapes(xp: Any, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(np.broadcast_shapes(*shapes))


def broadcast_arrays(xp: Any, *arrays: Any) -> list[Any]:
    shape = broadcast_shapes(xp, *(xp.shape(x) for x in arrays))
    return [xp.broadcast_to(x, shape) for x in arrays]


def matrix_transpose(xp: Any, x: Any, /) -> Any:
    count = len(xp.shape(x))
    if count < 2:
        msg = f"matrix_transpose was given a tensor of {dimensions(count)}"
        raise ArgumentError(msg, "it takes a matrix, or a stack of matrices")
    return xp.permute_dims(x, (*range(count - 2), count - 1, count - 2))


def moveaxis(xp: Any, x: Any, source: Any, destination: Any, /) -> Any:
    count = len(xp.shape(x))
    old, new = axes_of(source, count, "moveaxis"), axes_of(destination, count, "moveaxis")
    order = [axis for axis in range(count) if axis not in old]
    for target, axis in sorted(zip(new, old, strict=True)):
        order.insert(target, axis)
    return xp.permute_dims(x, tuple(order))


def expand_dims(xp: Any, x: Any, /, axis: Any = 0) -> Any:
    shape = xp.shape(x)
    given = axis if isinstance(axis, tuple) else (axis,)
    new = axes_of(given, len(shape) + len(given), "expand_dims")
    rest = iter(shape)
    return xp.reshape(x, tuple(1 if i in new else next(rest) for i in range(len(shape) + len(new))))


def squeeze(xp: Any, x: Any, /, axis: Any) -> Any:
    shape = xp.shape(x)
    gone = axes_of(axis, len(shape), "squeeze")
    if any(shape[i] != 1 for i in gone):
        msg = f"squeeze was given axis {axis} for a tensor of shape {shape}"
        raise ArgumentError(msg, "only axes of length 1 can be removed")
    return xp.reshape(x, tuple(size for i, size in enumerate(shape) if i not in gone))


def flip(xp: Any, x: Any, /, *, axis: Any = None) -> Any:
    count = len(xp.shape(x))
    turned = axes_of(axis, count, "flip")
    return x[tuple(slice(None, None, -1 if i in turned else None) for i in range(count))]


def roll(xp: Any, x: Any, /, shift: Any, *, axis: Any = None) -> Any:
    shape = xp.shape(x)
    if axis is None:
        return xp.reshape(xp.roll(xp.reshape(x, (-1,)), shift, axis=0), shape)
    axes = axis if isinstance(axis, tuple) else (axis,)
    shifts = shift if isinstance(shift, tuple) else (shift,) * len(axes)
    for by, each in zip(shifts, axes, strict=True):
        where = axis_of(each, len(shape), "roll")
        cut = -by % shape[where] if shape[where] else 0
        before = (slice(None),) * where
        x = xp.concat([x[(*before, slice(cut, None))], x[(*before, slice(None, cut))]], axis=where)
    return x


def unstack(xp: Any, x: Any, /, *, axis: int = 0) -> tuple[Any, ...]:
    shape = xp.shape(x)
    before = (slice(None),) * axis_of(axis, len(shape), "unstack")
    return tuple(x[(*before, i)] for i in range(shape[axis]))


def tile(xp: Any, x: Any, repetitions: tuple[int, ...], /) -> Any:
    shape = xp.shape(x)
    count = max(len(shape), len(repetitions))
    shape = (1,) * (count - len(shape)) + shape
    times = (1,) * (count - len(repetitions)) + tuple(repetitions)
    pairs = tuple(size for pair in zip((1,) * count, shape, strict=True) for size in pair)
    wide = tuple(size for pair in zip(times, shape, strict=True) for size in pair)
    whole = tuple(a * b for a, b in zip(times, shape, strict=True))
    return xp.reshape(xp.broadcast_to(xp.reshape(x, pairs), wide), whole)


def repeat(xp: Any, x: Any, repeats: Any, /, *, axis: int | None = None) -> Any:
    if axis is None:
        x, axis = xp.reshape(x, (-1,)), 0
    shape = xp.shape(x)
    where = axis_of(axis, len(shape), "repeat")
    if isinstance(repeats, int):
        wide = (*shape[: where + 1], repeats, *shape[where + 1 :])
        out = (*shape[:where], shape[where] * repeats, *shape[where + 1 :])
        return xp.reshape(xp.broadcast_to(xp.expand_dims(x, axis=where + 1), wide), out)
    ends = xp.cumulative_sum(xp.broadcast_to(repeats, (shape[where],)))
    places = xp.iota(int(ends[-1]) if shape[where] else 0, x)
    return xp.take(x, xp.searchsorted(ends, xp.astype(places, xp.dtypes.get(ends)), side="right"), axis=where)


def take_along_axis(xp: Any, x: Any, indices: Any, /, *, axis: int = -1) -> Any:
    shape, chosen = list(xp.shape(x)), list(xp.shape(indices))
    where = axis_of(axis, len(shape), "take_along_axis")
    if shape[:where] + shape[where + 1 :] != chosen[:where] + chosen[where + 1 :]:
        outer = [max(a, b) if a and b else 0 for a, b in zip(shape, chosen, strict=True)]
        x = xp.broadcast_to(x, tuple(shape[i] if i == where else outer[i] for i in range(len(shape))))
        indices = xp.broadcast_to(indices, tuple(chosen[i] if i == where else outer[i] for i in range(len(shape))))
    if where == len(shape) - 1:
        return _take_along_last(xp, x, indices)
    return xp.moveaxis(_take_along_last(xp, xp.moveaxis(x, where, -1), xp.moveaxis(indices, where, -1)), -1, where)


def _take_along_last(xp: Any, x: Any, indices: Any) -> Any:
    """Return the elements at indices into the last axis; the other axes of both are equal."""
    length, chosen = xp.shape(x)[-1], xp.shape(indices)
    native = xp.functions.get("_take_along_last")
    found = None if native is None else native(x, indices)
    if found is not None:
        return found
    count, rows = chosen[-1], prod(chosen[:-1])
    indices = xp.where(xp.less(indices, 0), xp.add(indices, length), indices)
    start = xp.multiply(xp.reshape(xp.iota(rows, x), (rows, 1)), length)
    flat = xp.add(xp.astype(xp.reshape(indices, (rows, count)), xp.dtypes.get(start)), start)
    return xp.reshape(xp.take(xp.reshape(x, (-1,)), xp.reshape(flat, (-1,)), axis=0), chosen)


def meshgrid(xp: Any, *arrays: Any, indexing: str = "xy") -> list[Any]:
    need_choice(indexing, ("xy", "ij"), "meshgrid", "indexing")
    count = len(arrays)
    swapped = indexing == "xy" and count > 1
    order = [1, 0, *range(2, count)] if swapped else list(range(count))
    shaped = [xp.reshape(x, tuple(-1 if i == order[k] else 1 for i in range(count))) for k, x in enumerate(arrays)]
    return xp.broadcast_arrays(*shaped) if count > 1 else [xp.positive(x) for x in arrays]


def tril(xp: Any, x: Any, /, *, k: int = 0) -> Any:
    return xp.where(_band_mask(xp, x, whole_axis(k, "tril", "k"), "tril"), x, _zero(xp, x))


def triu(xp: Any, x: Any, /, *, k: int = 0) -> Any:
    return xp.where(xp.logical_not(_band_mask(xp, x, whole_axis(k, "triu", "k") - 1, "triu")), x, _zero(xp, x))


def _zero(xp: Any, x: Any) -> Any:
    """Return zero, or False, in the dtype of a tensor."""
    return xp.scalar(False if xp.dtypes.is_kind(x, "bool") else 0, xp.dtypes.get(x), x)


def _band_mask(xp: Any, x: Any, k: int, call: str) -> Any:
    """Return a mask of the elements on the k-th diagonal and below it."""
    shape = xp.shape(x)
    if len(shape) < 2:
        msg = f"{call} was given a tensor of {dimensions(len(shape))}"
        raise ArgumentError(msg, "it takes a matrix, or a stack of matrices")
    rows, columns = shape[-2:]
    k = max(-rows, min(columns, k))  # the positions have 32 bits on some frameworks
    return xp.less_equal(
        xp.reshape(xp.iota(columns, x), (1, columns)), xp.add(xp.reshape(xp.iota(rows, x), (rows, 1)), k)
    )


FUNCTIONS = (
    astype,
    broadcast_shapes,
    broadcast_arrays,
    matrix_transpose,
    moveaxis,
    expand_dims,
    squeeze,
    flip,
    roll,
    unstack,
    tile,
    repeat,
    take_along_axis,
    meshgrid,
    tril,
    triu,
)
"""The functions; the table that they are given has the others."""
