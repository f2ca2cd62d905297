"""Linear algebra of the standard, in terms of other functions."""

from __future__ import annotations

import math
from typing import Any

from devshim.contract.namespaces import whole_axis
from devshim.errors import ArgumentError
from devshim_backends._array_api.manipulation import axis_of
from devshim_backends._array_api.statistics import to_floating

IN_BOTH = ("matmul", "matrix_transpose", "tensordot", "vecdot")
"""The functions that are in the main namespace and in ``linalg``."""


def vecdot(xp: Any, x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    if xp.dtypes.is_kind(x1, "complex floating"):
        x1 = xp.conj(x1)
    found = xp.multiply(x1, x2)
    axis = axis_of(axis, len(xp.shape(found)), "vecdot")
    return xp.astype(xp.sum(found, axis=axis), xp.dtypes.get(found), copy=False)


def tensordot(xp: Any, x1: Any, x2: Any, /, *, axes: Any = 2) -> Any:
    shapes = xp.shape(x1), xp.shape(x2)
    if not isinstance(axes, (tuple, list)):
        axes = whole_axis(axes, "tensordot", "axes")
        if not 0 <= axes <= min(map(len, shapes)):
            msg = f"tensordot was given axes={axes} for tensors of shapes {shapes[0]} and {shapes[1]}"
            raise ArgumentError(msg, "pass how many of the last axes of the first tensor to sum over, such as axes=1")
        axes = (range(len(shapes[0]) - axes, len(shapes[0])), range(axes))
    first, second = (
        [axis_of(each, len(shape), "tensordot") for each in which] for which, shape in zip(axes, shapes, strict=True)
    )
    used = zip(shapes, (first, second), strict=True)
    rest = [[i for i in range(len(shape)) if i not in gone] for shape, gone in used]
    out = tuple(shape[i] for shape, kept in zip(shapes, rest, strict=True) for i in kept)
    sizes = [math.prod(shape[i] for i in kept) for shape, kept in zip(shapes, rest, strict=True)]
    inner = math.prod(shapes[0][i] for i in first)
    left = xp.reshape(xp.permute_dims(x1, (*rest[0], *first)), (sizes[0], inner))
    right = xp.reshape(xp.permute_dims(x2, (*second, *rest[1])), (inner, sizes[1]))
    return xp.reshape(xp.matmul(left, right), out)


def outer(xp: Any, x1: Any, x2: Any, /) -> Any:
    return xp.multiply(xp.expand_dims(x1, axis=1), xp.expand_dims(x2, axis=0))


def cross(xp: Any, x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    x1, x2 = xp.broadcast_arrays(x1, x2)
    a, b = xp.unstack(x1, axis=axis), xp.unstack(x2, axis=axis)
    if len(a) != 3:
        msg = f"cross was given vectors of {len(a)} elements"
        raise ArgumentError(msg, "it takes vectors of 3 elements along the axis")
    parts = [xp.subtract(xp.multiply(a[i], b[j]), xp.multiply(a[j], b[i])) for i, j in ((1, 2), (2, 0), (0, 1))]
    return xp.stack(parts, axis=axis)


def diagonal(xp: Any, x: Any, /, *, offset: int = 0) -> Any:
    *outer_shape, rows, columns = xp.shape(x)
    offset = max(-rows, min(columns, whole_axis(offset, "diagonal", "offset")))
    count = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
    flat = xp.reshape(x, (*outer_shape, rows * columns))
    start = max(offset, 0) - min(offset, 0) * columns
    places = xp.add(xp.multiply(xp.iota(count, x), columns + 1), start)
    return xp.take(flat, places, axis=len(outer_shape))


def trace(xp: Any, x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    return xp.sum(diagonal(xp, x, offset=offset), axis=-1, dtype=dtype)


def vector_norm(xp: Any, x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    size, how = xp.abs(to_floating(xp, x)), {"axis": axis, "keepdims": keepdims}
    if ord in (math.inf, -math.inf):
        return (xp.max if ord > 0 else xp.min)(size, **how)
    if ord == 0:
        return xp.sum(xp.astype(xp.not_equal(size, 0), xp.dtypes.get(size)), **how)
    if ord == 1:
        return xp.sum(size, **how)
    if ord == 2:
        return xp.sqrt(xp.sum(xp.multiply(size, size), **how))
    return xp.pow(xp.sum(xp.pow(size, float(ord)), **how), 1 / ord)


def matrix_norm(xp: Any, x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    if ord == "fro":
        return vector_norm(xp, x, axis=(-2, -1), keepdims=keepdims)
    if ord in (1, -1, math.inf, -math.inf):
        axis = -2 if abs(ord) == 1 else -1
        sums = xp.sum(xp.abs(x), axis=axis, keepdims=True)
        found = (xp.max if ord > 0 else xp.min)(sums, axis=(-2, -1), keepdims=True)
    else:
        values = xp.functions["linalg.svdvals"](x)
        reduce = {"nuc": xp.sum, 2: xp.max, -2: xp.min}[ord]
        found = xp.expand_dims(reduce(values, axis=-1, keepdims=True), axis=-1)
    return found if keepdims else xp.squeeze(found, axis=(-2, -1))


def matrix_power(xp: Any, x: Any, n: int, /) -> Any:
    if n < 0:
        x, n = xp.functions["linalg.inv"](x), -n
    found = None
    while n:
        if n & 1:
            found = x if found is None else xp.matmul(found, x)
        x, n = xp.matmul(x, x), n >> 1
    return _identity(xp, x) if found is None else found


def _identity(xp: Any, x: Any) -> Any:
    """Return the identity matrix in the shape, dtype and place of a stack of matrices."""
    size = xp.shape(x)[-1]
    places = xp.iota(size, x)
    same = xp.equal(xp.reshape(places, (1, size)), xp.reshape(places, (size, 1)))
    return xp.broadcast_to(xp.astype(same, xp.dtypes.get(x)), xp.shape(x))


def matrix_rank(xp: Any, x: Any, /, *, rtol: Any = None) -> Any:
    values = xp.functions["linalg.svdvals"](x)
    if not xp.shape(values)[-1]:
        return xp.count_nonzero(values, axis=-1)
    largest = xp.max(values, axis=-1, keepdims=True)
    limit = xp.multiply(largest, _tolerance(xp, x) if rtol is None else _to_column(xp, rtol))
    return xp.count_nonzero(xp.greater(values, limit), axis=-1)


def pinv(xp: Any, x: Any, /, *, rtol: Any = None) -> Any:
    *batch, rows, columns = xp.shape(x)
    if not rows or not columns:
        return xp.reshape(x, (*batch, columns, rows))
    u, s, vh = xp.functions["linalg.svd"](x, full_matrices=False)
    limit = xp.multiply(xp.max(s, axis=-1, keepdims=True), _tolerance(xp, x) if rtol is None else _to_column(xp, rtol))
    large = xp.greater(s, limit)
    inverse = xp.where(large, xp.divide(1, xp.where(large, s, xp.number(1, s))), xp.number(0, s))
    if xp.dtypes.is_kind(x, "complex floating"):
        u, vh = xp.conj(u), xp.conj(vh)
    scaled = xp.multiply(xp.matrix_transpose(vh), xp.expand_dims(inverse, axis=-2))
    return xp.matmul(scaled, xp.matrix_transpose(u))


def _tolerance(xp: Any, x: Any) -> float:
    """Return the default relative tolerance of the standard."""
    return float(max(xp.shape(x)[-2:]) * xp.dtypes.finfo(xp.dtypes.get(x)).eps)


def _to_column(xp: Any, rtol: Any) -> Any:
    return xp.expand_dims(rtol, axis=-1) if hasattr(rtol, "dtype") else rtol


def svdvals(xp: Any, x: Any, /) -> Any:
    return xp.functions["linalg.svd"](x, full_matrices=False)[1]


def eigvalsh(xp: Any, x: Any, /) -> Any:
    return xp.functions["linalg.eigh"](x)[0]


FUNCTIONS = (vecdot, tensordot)
"""The functions of the main namespace; the table that they are given has the others."""

LINALG = (outer, cross, diagonal, trace, vector_norm, matrix_norm, matrix_power, matrix_rank, pinv, svdvals, eigvalsh)
"""The functions that exist only in ``linalg``."""
