"""Functions of the standard that search and sort, and those of sets, in terms of others."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

from devshim_backends._array_api.manipulation import axis_of


class UniqueAll(NamedTuple):
    """The result of ``unique_all``."""

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCounts(NamedTuple):
    """The result of ``unique_counts``."""

    values: Any
    counts: Any


class UniqueInverse(NamedTuple):
    """The result of ``unique_inverse``."""

    values: Any
    inverse_indices: Any


def argsort(xp: Any, x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    where = axis_of(axis, len(xp.shape(x)), "argsort")
    if not descending:
        return xp._argsort(x, where)
    last = xp.shape(x)[where] - 1
    return xp.subtract(last, xp.flip(xp._argsort(xp.flip(x, axis=where), where), axis=where))


def sort(xp: Any, x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    where = axis_of(axis, len(xp.shape(x)), "sort")
    found = xp._sort(x, where)
    return xp.flip(found, axis=where) if descending else found


def isin(xp: Any, x1: Any, x2: Any, /, *, invert: bool = False) -> Any:
    if not hasattr(x2, "dtype"):
        found = xp.equal(x1, x2)
    else:
        shape = (1,) * (len(xp.shape(x1)) if hasattr(x1, "dtype") else 0)
        wide = xp.expand_dims(x1, axis=len(shape)) if hasattr(x1, "dtype") else x1
        found = xp.any(xp.equal(wide, xp.reshape(x2, (*shape, -1))), axis=-1)
    return xp.logical_not(found) if invert else found


def unique_all(xp: Any, x: Any, /) -> UniqueAll:
    if xp.dtypes.is_kind(x, "bool"):
        found = unique_all(xp, xp.astype(x, xp.dtypes.own["int32"]))
        return found._replace(values=xp.astype(found.values, xp.dtypes.own["bool"]))
    count = prod(xp.shape(x))
    flat = xp.reshape(x, (count,))
    if not count:
        none = xp.astype(xp.iota(0, x), xp.dtypes.own["int64"])
        return UniqueAll(flat, none, xp.reshape(none, xp.shape(x)), none)
    order = xp.argsort(flat)
    ordered = xp.take(flat, order, axis=0)
    first = xp.concat([xp.isin(order[:1], order[:1]), xp.not_equal(ordered[1:], ordered[:-1])], axis=0)
    (starts,) = xp.nonzero(first)
    starts = xp.astype(starts, xp.dtypes.get(order), copy=False)
    ends = xp.concat([starts[1:], xp.add(xp.multiply(starts[:1], 0), count)], axis=0)
    group = xp.subtract(xp.cumulative_sum(xp.astype(first, xp.dtypes.get(order))), 1)
    inverse = xp.take(xp.astype(group, xp.dtypes.get(order)), xp.argsort(order), axis=0)
    return UniqueAll(
        xp.take(ordered, starts, axis=0),
        xp.take(order, starts, axis=0),
        xp.reshape(inverse, xp.shape(x)),
        xp.subtract(ends, starts),
    )


def unique_counts(xp: Any, x: Any, /) -> UniqueCounts:
    found = xp.unique_all(x)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(xp: Any, x: Any, /) -> UniqueInverse:
    found = xp.unique_all(x)
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(xp: Any, x: Any, /) -> Any:
    return xp.unique_all(x).values


FUNCTIONS = (argsort, sort, isin, unique_all, unique_counts, unique_inverse, unique_values)
"""The functions; the table that they are given has the others."""
