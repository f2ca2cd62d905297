"""Exact functions of int64, which MXNet computes in float64: it loses what is beyond 2**53.

Sums, differences, products and maxima of two tensors are exact (1.9.1 and 2.0.0b1), so these functions are built on
them. Numbers are passed to the operators as float64: `tensor_if_large` makes tensors of those that would be rounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mxnet as mx
import numpy as np

from devshim_backends._mxnet.internals.native import CODES, IS_2, dtype_code

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["comparison", "floor_divide", "remainder", "tensor_if_large"]

_INT64 = CODES["int64"]
_LARGE = 2**53


def _is_int64(x: Any) -> bool:
    return hasattr(x, "handle") and dtype_code(x) == _INT64


def tensor_if_large(x: Any) -> Any:
    """Return a value, but a whole number that float64 rounds as a tensor without dimensions."""
    is_large = type(x) is int and _LARGE <= abs(x) < 2**63
    return mx.np.array(np.array(x, "int64"), dtype="int64") if is_large else x


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


def _as_float(x: Any) -> Any:
    return x.astype("float64") if hasattr(x, "handle") else float(x)
