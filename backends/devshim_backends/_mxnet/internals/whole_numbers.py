"""Exact functions of int64, which MXNet computes in float64: it loses what is beyond 2**53.

Sums, differences, products and maxima of two tensors are exact, and wrap (1.9.1 and 2.0.0b1), so these functions are
built on them. Numbers are passed to the operators as float64: `tensor_if_large` makes tensors of those that would be
rounded. The bits of a uint64 tensor, as int64, give the right bits, except where a function says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mxnet as mx
import numpy as np

from devshim_backends._array_api.elementwise import finite_in_range
from devshim_backends._mxnet.internals import many_axes
from devshim_backends._mxnet.internals.native import CODES, IS_2, dtype_code

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["comparable", "comparison", "floor_divide", "left_shift", "logical_right_shift", "matmul", "power"]
__all__ += ["product", "remainder", "right_shift", "tensor_if_large"]

_INT64 = CODES["int64"]
_LARGE = 2**53


def _is_int64(x: Any) -> bool:
    return hasattr(x, "handle") and dtype_code(x) == _INT64


def tensor_if_large(x: Any) -> Any:
    """Return a value, but a whole number that float64 rounds as a tensor without dimensions."""
    is_large = type(x) is int and _LARGE <= abs(x) < 2**63
    return mx.np.array(np.array(x, "int64"), dtype="int64") if is_large else x


def comparable(x: float, name: str) -> float:
    """Return a number for comparisons with integers; one outside their range is infinite: float64 would round it."""
    return float(finite_in_range(x, np.iinfo(name)) if type(x) is int else x)


def comparison(name: str) -> Callable[..., Any]:
    """Return the function with a name of ``mx.np``; 2.0 compares int64 in float64, and 1.9 does not."""
    native = getattr(mx.np, name)
    if not IS_2:
        return native  # type: ignore[no-any-return]
    test, operand = _TESTS[name]

    def compare(x1: Any, x2: Any) -> Any:
        if not (_is_int64(x1) and _is_int64(x2)):
            return native(x1, x2)
        one = mx.np.maximum(x1, x2) if operand else x1
        return test(mx.np.subtract(one, x1 if operand == 1 else x2), 0)

    return compare


_TESTS = {
    "equal": (mx.np.equal, 0),
    "not_equal": (mx.np.not_equal, 0),
    "less": (mx.np.not_equal, 1),
    "less_equal": (mx.np.equal, 2),
    "greater": (mx.np.not_equal, 2),
    "greater_equal": (mx.np.equal, 1),
}
"""Comparison -> the test of a difference with zero, and the operand that is subtracted from the larger one; 0: the
difference of both operands."""


def floor_divide(x1: Any, x2: Any) -> Any:
    """Return the quotient of whole numbers, rounded down."""
    return _divide(x1, x2)[0]


def remainder(x1: Any, x2: Any) -> Any:
    """Return the remainder of whole numbers, with the sign of the divisor."""
    return _divide(x1, x2)[1]


def _divide(x1: Any, x2: Any) -> tuple[Any, Any]:
    """Return quotient and remainder of int64.

    The quotient in float64 leaves a rest, whose quotient corrects it. The sum of both is at most 1 too large. In that
    case, the sign of the rest is not that of the divisor.
    """
    divisor = _as_float(x2)
    quotient, rest = 0, x1
    for _ in range(2):
        part = mx.np.floor(mx.np.true_divide(_as_float(rest), divisor)).astype("int64")
        quotient = mx.np.add(part, quotient)
        rest = mx.np.subtract(rest, mx.np.multiply(part, x2))
    excess = mx.np.less(mx.np.multiply(_as_float(rest), divisor), 0).astype("int64")
    return mx.np.subtract(quotient, excess), mx.np.add(rest, mx.np.multiply(excess, x2))


def _as_tensor(x: Any) -> Any:
    """Return a whole number as a tensor without dimensions."""
    return x if hasattr(x, "handle") else mx.np.array(np.array(x, "int64"), dtype="int64")


def _powers_of_two(x: Any) -> tuple[Any, Any]:
    """Return two powers of two, each at most 2**32, whose product is 2**x, for numbers from 0; 64 counts for more."""
    x = mx.np.minimum(_as_float(_as_tensor(x)), 64)
    half = mx.np.floor(mx.np.true_divide(x, 2))
    first, second = (mx.np.power(2.0, each).astype("int64") for each in (half, mx.np.subtract(x, half)))
    return first, second


def left_shift(x1: Any, x2: Any) -> Any:
    """Return whole numbers whose bits are shifted to the left; bits beyond the 64th are lost."""
    first, second = _powers_of_two(x2)
    return mx.np.multiply(mx.np.multiply(_as_tensor(x1), first), second)


def right_shift(x1: Any, x2: Any) -> Any:
    """Return whole numbers whose bits are shifted to the right; negative numbers stay negative."""
    first, second = _powers_of_two(x2)
    return floor_divide(floor_divide(_as_tensor(x1), first), second)


def logical_right_shift(x1: Any, x2: Any) -> Any:
    """Return the bits of uint64 shifted to the right: zeros come from the left, also for negative int64."""
    x1, x2 = _as_tensor(x1), _as_tensor(x2)
    moved = mx.np.multiply(mx.np.less(x1, 0).astype("int64"), mx.np.minimum(x2, 1))
    return mx.np.add(right_shift(x1, x2), mx.np.multiply(moved, left_shift(1, mx.np.subtract(64, x2))))


def power(x1: Any, x2: Any, bits: int, *, signed: bool = True) -> Any:
    """Return powers of whole numbers; with a negative exponent, 0 for all bases but 1 and -1.

    Args:
        x1: The bases.
        x2: The exponents.
        bits: How many bits the exponents have.
        signed: False if negative exponents are the bits of uint64.
    """
    bits = bits if hasattr(x2, "handle") else max(1, abs(x2).bit_length())
    base, exponent = _as_tensor(x1), _as_tensor(x2)
    count = mx.np.maximum(exponent, mx.np.negative(exponent)) if signed else exponent
    square, found = base, None
    for i in range(bits):
        square = square if i == 0 else mx.np.multiply(square, square)
        mask = 2**i if i < 31 else left_shift(1, i)  # 1.9 passes it as 32 bits
        bit = mx.np.not_equal(mx.np.bitwise_and(count, mask), 0)
        factor = mx.np.add(mx.np.multiply(bit.astype("int64"), mx.np.subtract(square, 1)), 1)
        found = factor if found is None else mx.np.multiply(found, factor)
    if not signed:
        return found
    others = mx.np.not_equal(mx.np.multiply(base, base), 1).astype("int64")
    is_zero = mx.np.multiply(mx.np.less(exponent, 0).astype("int64"), others)
    return mx.np.multiply(found, mx.np.subtract(1, is_zero))


def product(x: Any, axis: Any, keepdims: bool) -> Any:
    """Return the products of whole numbers along axes, which are a tuple; each step multiplies two halves."""
    kept = [i for i in range(len(x.shape)) if i not in axis]
    shape = tuple(x.shape[i] for i in kept)
    final = tuple(1 if i in axis else length for i, length in enumerate(x.shape)) if keepdims else shape
    x = many_axes.transpose(x, (*axis, *kept)).reshape((-1, *shape))
    while (count := x.shape[0]) > 1:
        half = count // 2
        rest = [x[2 * half :]] if count % 2 else []
        x = mx.np.concatenate([mx.np.multiply(x[:half], x[half : 2 * half]), *rest], axis=0)
    return x.reshape(final)


def matmul(x1: Any, x2: Any, bits: int) -> Any:
    """Return the products of int64 matrices, exact in the lowest bits; float64 products of few bits are exact.

    Each matrix is the sum of parts of equally many bits. The sum of a row of products has at most 53 bits.
    """
    width = min(bits, (53 - max(1, x1.shape[-1]).bit_length()) // 2)
    first, second = (_parts(x, width, -(-bits // width)) for x in (x1, x2))
    found: Any = 0
    for i, left in enumerate(first):
        for j, right in enumerate(second[: len(second) - i]):  # the others have only bits that are lost
            part = mx.np.matmul(left, right).astype("int64")
            found = mx.np.add(left_shift(part, (i + j) * width) if i + j else part, found)
    return found


def _parts(x: Any, width: int, count: int) -> list[Any]:
    """Return parts of whole numbers as float64, the lowest bits first; the bits beyond all parts are lost."""
    found = []
    for _ in range(count):
        rest = right_shift(x, width)
        found.append(mx.np.subtract(x, left_shift(rest, width)).astype("float64"))
        x = rest
    return found


def _as_float(x: Any) -> Any:
    return x.astype("float64") if hasattr(x, "handle") else float(x)
