"""Elementwise functions of the standard, in terms of others."""

from __future__ import annotations

import math
from functools import wraps
from typing import TYPE_CHECKING, Any

from devshim_backends._array_api.dtypes import KINDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim_backends._array_api.dtypes import Dtypes

NUMBERS = frozenset({bool, int, float, complex})
"""The Python types that a function of two arguments takes together with a tensor."""
COMPARISONS = frozenset({"equal", "not_equal", "less", "less_equal", "greater", "greater_equal"})
"""The functions whose results are right for numbers outside the range of an integer dtype."""


def with_promotion(
    dtypes: Dtypes,
    scalar: Callable[[Any, Any, Any], Any],
    cast: Callable[[Any, Any], Any],
    fn: Callable[..., Any],
    call: str = "",
) -> Callable[..., Any]:
    """Return a function of two tensors, or a tensor and a number, that promotes their dtypes as the standard does.

    Args:
        dtypes: The framework's dtypes.
        scalar: Returns a number as a tensor of a dtype, on the device of another tensor.
        cast: Returns a tensor in a dtype.
        fn: The function of two tensors of one dtype.
        call: The function's name: comparisons and quotients of whole numbers take numbers of any size.
    """
    compares, divides = call in COMPARISONS, call == "divide"

    @wraps(fn)
    def promote(x1: Any, x2: Any, /) -> Any:
        kinds = type(x1), type(x2)
        if kinds[0] not in NUMBERS and kinds[1] not in NUMBERS and x1.dtype == x2.dtype:
            return fn(x1, x2)
        name = dtypes.result_name(x1, x2)
        like = x2 if kinds[0] in NUMBERS else x1
        if (compares or divides) and int in kinds and name in KINDS["integral"]:
            info = dtypes.iinfo(name)
            fitted = [finite_in_range(x, info) if type(x) is int else x for x in (x1, x2)]
            if fitted[0] is not x1 or fitted[1] is not x2:
                name = "float64" if compares else "float32"
                x1, x2 = fitted if compares else (x1, x2)
        return fn(*(_as_dtype(dtypes, scalar, cast, x, name, like) for x in (x1, x2)))

    return promote


def finite_in_range(value: int, info: Any) -> float:
    """Return a whole number, or an infinite one if it is outside the range of an integer dtype."""
    return value if info.min <= value <= info.max else math.copysign(math.inf, value)


def _as_dtype(dtypes: Dtypes, scalar: Any, cast: Any, x: Any, name: str, like: Any) -> Any:
    """Return a tensor or number as a tensor of a dtype."""
    if type(x) in NUMBERS:
        return scalar(x, dtypes.own[name], like)
    return x if dtypes.name_of(x) == name else cast(x, dtypes.own[name])


def reciprocal(xp: Any, x: Any, /) -> Any:
    return xp.divide(1, x)


def square(xp: Any, x: Any, /) -> Any:
    return xp.multiply(x, x)


def positive(xp: Any, x: Any, /) -> Any:
    return xp.astype(x, xp.dtypes.get(x))


def hypot(xp: Any, x1: Any, x2: Any, /) -> Any:
    name = xp.dtypes.result_name(x1, x2, 0.0)
    x1, x2 = xp.abs(_floating(xp, x1, name, x2)), xp.abs(_floating(xp, x2, name, x1))
    large, small = xp.maximum(x1, x2), xp.minimum(x1, x2)
    ratio = xp.divide(small, xp.where(xp.equal(large, 0), xp.number(1, large), large))
    ratio = xp.where(xp.isinf(large), xp.number(0, large), ratio)
    return xp.multiply(large, xp.sqrt(xp.add(xp.multiply(ratio, ratio), 1)))


def logaddexp(xp: Any, x1: Any, x2: Any, /) -> Any:
    name = xp.dtypes.result_name(x1, x2, 0.0)
    x1, x2 = _floating(xp, x1, name, x2), _floating(xp, x2, name, x1)
    large, small = xp.maximum(x1, x2), xp.minimum(x1, x2)
    gap = xp.where(xp.equal(large, small), xp.number(0, large), xp.subtract(small, large))
    return xp.add(large, xp.log1p(xp.exp(gap)))


def signbit(xp: Any, x: Any, /) -> Any:
    below = xp.less(x, 0)
    return xp.where(xp.equal(x, 0), xp.less(xp.divide(1, x), 0), below)


def copysign(xp: Any, x1: Any, x2: Any, /) -> Any:
    name = xp.dtypes.result_name(x1, x2, 0.0)
    size = xp.abs(_floating(xp, x1, name, x2))
    return xp.where(xp.signbit(_floating(xp, x2, name, x1)), xp.negative(size), size)


def _floating(xp: Any, x: Any, name: str, like: Any) -> Any:
    """Return a tensor or number as a tensor of a floating dtype."""
    dtype = xp.dtypes.own[name]
    return xp.scalar(x, dtype, like) if type(x) in NUMBERS else xp.astype(x, dtype, copy=False)


def trunc(xp: Any, x: Any, /) -> Any:
    if xp.dtypes.is_kind(x, "integral"):
        return x
    return xp.where(xp.less(x, 0), xp.ceil(x), xp.floor(x))


def clip(xp: Any, x: Any, /, min: Any = None, max: Any = None) -> Any:
    found, kept = x, xp.dtypes.get(x)
    if min is not None:
        found = xp.maximum(found, _bound(xp, x, min))
    if max is not None:
        found = xp.minimum(found, _bound(xp, x, max))
    return xp.positive(x) if found is x else xp.astype(found, kept, copy=False)


def _bound(xp: Any, x: Any, bound: Any) -> Any:
    """Return a bound; for a tensor of integers, a Python number as an integer of its dtype."""
    if type(bound) not in (int, float) or not xp.dtypes.is_kind(x, "integral"):
        return bound
    return bound_in_range(bound, xp.dtypes.iinfo(xp.dtypes.name(x)))


def bound_in_range(bound: float, info: Any) -> Any:
    """Return a bound of integers as the nearest integer of their dtype towards zero; NaN unchanged."""
    return bound if bound != bound else int(max(info.min, min(bound, info.max)))


def isfinite(xp: Any, x: Any, /) -> Any:
    return xp.logical_not(xp.logical_or(xp.isinf(x), xp.isnan(x)))


def log2(xp: Any, x: Any, /) -> Any:
    return _scaled_log(xp, x, math.log(2))


def log10(xp: Any, x: Any, /) -> Any:
    return _scaled_log(xp, x, math.log(10))


def _scaled_log(xp: Any, x: Any, divisor: float) -> Any:
    """Return the logarithm divided by a number; a quotient of complex numbers would be NaN if a part is infinite."""
    found = xp.log(x)
    if not xp.dtypes.is_kind(found, "complex floating"):
        return xp.divide(found, divisor)
    return xp.add(xp.divide(xp.real(found), divisor), xp.multiply(1j, xp.divide(xp.imag(found), divisor)))


def real(xp: Any, x: Any, /) -> Any:
    return x


def imag(xp: Any, x: Any, /) -> Any:
    return xp.multiply(x, 0)


def atan2(xp: Any, x1: Any, x2: Any, /) -> Any:
    half = xp.atan(xp.divide(x1, x2))
    shift = xp.where(xp.signbit(x1), xp.number(-math.pi, half), xp.number(math.pi, half))
    return xp.where(xp.signbit(x2), xp.add(half, shift), half)


FUNCTIONS = (
    reciprocal,
    square,
    positive,
    hypot,
    logaddexp,
    signbit,
    copysign,
    trunc,
    clip,
    isfinite,
    log2,
    log10,
    real,
    imag,
    atan2,
)
"""The functions; the table that they are given has the others."""
