"""The dtypes of PaddlePaddle for the array API, and ways around the kernels that it lacks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import paddle

from devshim_backends._array_api.dtypes import Dtypes
from devshim_backends._array_api.elementwise import with_promotion
from devshim_backends._paddle.creation import DTYPE_NAMES, PADDLE_DTYPES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_SYMBOLS = {str(dtype).rpartition(".")[2].lower(): name for dtype, name in DTYPE_NAMES.items()}


def name_of(x: Any) -> str:
    """Return the name of a dtype; those of tensors in a compiled function are of another class."""
    return DTYPE_NAMES.get(x.dtype) or _SYMBOLS[str(x.dtype).rpartition(".")[2].lower()]


DT = Dtypes(
    PADDLE_DTYPES, name_of, lambda cls: issubclass(cls, paddle.Tensor) or hasattr(cls, "stop_gradient"), "int64"
)

WIDE = {"bool": "int32", "int8": "int32", "int16": "int32", "uint8": "int32"}
"""Dtypes for which many functions have no kernel -> the dtype in which these compute instead."""


HALF = {"float16": "float32", "bfloat16": "float32"}
"""The same, for functions that lack kernels for these floats."""


def cast(x: Any, dtype: Any) -> Any:
    name = DT.name(dtype)
    if DT.is_kind(x, "complex floating") and not DT.isdtype(name, "complex floating"):
        if name == "bool":
            return paddle.logical_or(paddle.real(x).astype(name), paddle.imag(x).astype(name))
        x = paddle.real(x)
    return paddle.cast(x, name) if name_of(x) != name else paddle.assign(x)


def logarithm(fn: Callable[..., Any], base: int) -> Callable[..., Any]:
    """Return a function of a logarithm; of complex numbers it divides the parts, because `fn` makes NaN of log(0)."""
    real = in_wider(fn, same=False)

    def log(x: Any, /) -> Any:
        if not DT.is_kind(x, "complex floating"):
            return real(x)
        found = paddle.log(x)
        return paddle.complex(paddle.real(found) / math.log(base), paddle.imag(found) / math.log(base))

    return log


def scalar(value: Any, dtype: Any, x: Any) -> Any:
    return paddle.full([], value, DT.name(dtype))


def iota(count: int, x: Any) -> Any:
    return paddle.arange(count, dtype="int64")


def in_wider(fn: Callable[..., Any], same: bool = True, dtypes: Mapping[str, str] = WIDE) -> Callable[..., Any]:
    """Return a function that computes with small integers in a wider dtype, and casts the result back if ``same``.

    Args:
        fn: The function.
        same: True if the result is cast back.
        dtypes: The dtypes that have no kernel -> the dtype in which these compute instead.
    """

    def compute(*xs: Any) -> Any:
        name = name_of(xs[0])
        if name not in dtypes:
            return fn(*xs)
        found = fn(*(paddle.cast(x, dtypes[name]) for x in xs))
        return paddle.cast(found, name) if same else found

    return compute


def _whole_power(base: Any, exponent: Any, bits: int) -> Any:
    """Return powers of integers that wrap as products do; PaddlePaddle (3.3) computes them in float64.

    A negative exponent gives 0 for all bases but 1 and -1.

    Args:
        base: The bases.
        exponent: The exponents, in the same dtype.
        bits: How many bits the exponents have at most.
    """
    name = name_of(base)
    square, exponent = paddle.cast(base, "int64"), paddle.cast(exponent, "int64")
    is_zero = paddle.logical_and(exponent < 0, square * square != 1)
    count, found = paddle.abs(exponent), paddle.cast(paddle.logical_not(is_zero), "int64")
    for i in range(bits):
        square = square if i == 0 else square * square
        bit = paddle.bitwise_and(count, paddle.full_like(count, 1 << i)) != 0
        found = found * (paddle.cast(bit, "int64") * (square - 1) + 1)
    return paddle.cast(found, name)


def power(x1: Any, x2: Any, /) -> Any:
    """Return powers of two tensors or numbers."""
    bits = max(1, abs(x2).bit_length()) if type(x2) is int else 63

    def compute(base: Any, exponent: Any) -> Any:
        is_whole = DT.is_kind(base, "integral")
        return _whole_power(base, exponent, bits) if is_whole else paddle.pow(base, exponent)

    return with_promotion(DT, scalar, cast, compute)(x1, x2)


def argsort(x: Any, axis: int) -> Any:
    """Return the indices that sort a tensor; equal elements keep their order."""
    return in_wider(lambda t: paddle.argsort(t, axis=axis, stable=True), same=False)(x)


def cumulative(fn: Callable[..., Any]) -> Callable[[Any, int], Any]:
    """Return a cumulative function that keeps the dtype; PaddlePaddle's sum of int32 is int64 (3.3)."""

    def compute(x: Any, axis: int) -> Any:
        name, found = name_of(x), in_wider(lambda t: fn(t, axis))(x)
        return found if name_of(found) == name else paddle.cast(found, name)

    return compute


def floor_divide(x1: Any, x2: Any) -> Any:
    """Return the quotient, rounded down; that of the smallest integer and -1 wraps, and ends the process natively."""
    if name_of(x1) not in _DIVIDED:
        return paddle.floor_divide(x1, x2)
    ones, is_minus_one = paddle.ones_like(x2), x2 == -1
    return paddle.floor_divide(x1, paddle.where(is_minus_one, ones, x2)) * paddle.where(is_minus_one, x2, ones)


def remainder(x1: Any, x2: Any) -> Any:
    """Return the remainder; natively, two kinds of integers end the process (3.3).

    They are a tensor without dimensions by integers of which one is 0, and the smallest integer by -1.
    """
    if name_of(x1) in _DIVIDED:
        x2 = paddle.where(x2 == -1, paddle.ones_like(x2), x2)
    return paddle.remainder(x1 if x1.shape or not x2.shape else paddle.expand(x1, x2.shape), x2)


_DIVIDED = frozenset({"int32", "int64"})
"""The integers that are divided in their own dtype; those of fewer bits are divided in int32."""
