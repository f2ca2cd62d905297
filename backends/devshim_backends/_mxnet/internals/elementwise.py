"""Elementwise functions of the array API for MXNet, its dtypes, and ways around the kernels that it lacks.

Names of ``mx.np`` that compute with NumPy on the host are not used: their results would be copied there and back.
"""

from __future__ import annotations

from functools import partial, wraps
from typing import TYPE_CHECKING, Any

import mxnet as mx
import numpy as np

from devshim_backends._array_api.dtypes import Dtypes
from devshim_backends._mxnet.internals.native import CODES, NAMES, dtype_code

if TYPE_CHECKING:
    from collections.abc import Callable

_NUMBERS = (bool, int, float, complex)


def name_of(x: Any) -> str:
    return NAMES[dtype_code(x)]


DT = Dtypes(
    {name: np.dtype(name) for name in CODES if name != "bfloat16"}, name_of, lambda cls: issubclass(cls, mx.nd.NDArray)
)


def cast(x: Any, dtype: Any) -> Any:
    if isinstance(x, np.ndarray):  # it would be cast by NumPy
        msg = "this is a NumPy array"
        raise TypeError(msg)
    name = DT.name(dtype)
    if name == "bool" and name_of(x) != "bool":
        return mx.np.not_equal(x, 0)
    return x.astype(name)


def scalar(value: Any, dtype: Any, x: Any) -> Any:
    return mx.np.full((), value, dtype=DT.name(dtype))


def iota(count: int, x: Any) -> Any:
    return mx.np.arange(count, dtype="int64") if count else mx.np.zeros((0,), dtype="int64")


def _on_floats(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a rounding function that returns integers unchanged, as the standard requires."""
    return lambda x, /: fn(x) if DT.is_kind(x, "real floating") else x.copy()


def _answer_for_integers(fn: Callable[..., Any], answer: bool) -> Callable[..., Any]:
    return lambda x, /: fn(x) if DT.is_kind(x, "real floating") else mx.np.full(x.shape, answer, dtype="bool")


def _with_promotion(fn: Callable[..., Any], via: str = "", *, same: bool = True) -> Callable[..., Any]:
    """Return a function of two tensors or numbers that promotes their dtypes as the standard does.

    Args:
        fn: The function.
        via: The dtype in which it computes with integers and bools, for which it has no kernel.
        same: True if the result has the promoted dtype.
    """

    def promote(x1: Any, x2: Any, /) -> Any:
        name = DT.result_name(x1, x2)
        whole = via and name not in ("float16", "float32", "float64")
        xs = [x if isinstance(x, _NUMBERS) else x.astype(via if whole else name, copy=False) for x in (x1, x2)]
        found = fn(*xs)
        return found.astype(name, copy=False) if same else found

    return promote


def _compute_as_integers(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of bools that computes with integers."""
    return lambda x1, x2, /: mx.np.not_equal(
        fn(*(x.astype("int32") if hasattr(x, "astype") else int(x) for x in (x1, x2))), 0
    )


def _bitwise(fn: Callable[..., Any]) -> Callable[..., Any]:
    def compute(x1: Any, x2: Any, /) -> Any:
        bools = DT.result_name(x1, x2) == "bool"
        return _compute_as_integers(fn)(x1, x2) if bools else _with_promotion(fn)(x1, x2)

    return compute


def _invert(x: Any, /) -> Any:
    if name_of(x) == "bool":
        return mx.np.logical_not(x)
    return mx.np.subtract(mx.np.multiply(x.astype("int64"), -1), 1).astype(x.dtype)


def _floor_divide(x1: Any, x2: Any, /) -> Any:
    return mx.np.floor(mx.np.true_divide(x1, x2))


def _left_shift(x1: Any, x2: Any, /) -> Any:
    return mx.np.multiply(x1, mx.np.power(2.0, x2) if hasattr(x2, "dtype") else 2**x2)


def _right_shift(x1: Any, x2: Any, /) -> Any:
    return mx.np.floor(mx.np.true_divide(x1, mx.np.power(2.0, x2) if hasattr(x2, "dtype") else 2**x2))


RARE = {"bool": "int32", "int16": "int64", "uint16": "int64", "uint32": "int64", "uint64": "int64"}
"""Dtypes for which many functions have no kernel -> the dtype in which these compute instead."""


def with_kernel_dtype(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that moves elements in a dtype that has a kernel, and casts the result back."""

    @wraps(fn)
    def move(x: Any, *args: Any, **options: Any) -> Any:
        first = x[0] if isinstance(x, list) else x
        name = name_of(first)
        if name not in RARE:
            return fn(x, *args, **options)
        wide = [each.astype(RARE[name]) for each in x] if isinstance(x, list) else x.astype(RARE[name])
        return cast(fn(wide, *args, **options), name)

    return move


def wide(x: Any, fn: Callable[[Any], Any]) -> Any:
    """Return a function's result, computed in float64 for integers, and cast back to their dtype."""
    return fn(x) if DT.is_kind(x, "real floating") else fn(x.astype("float64")).astype(x.dtype)


def _round(x: Any) -> Any:
    """Return floats rounded to whole ones, halves to even ones, where ``mx.np.rint`` rounds them up."""
    low = mx.np.floor(x)
    part = x - low
    high = mx.np.where(part == 0.5, low + mx.np.mod(low, 2), mx.np.where(part > 0.5, low + 1, low))
    return mx.np.where(mx.np.isfinite(x), high, x)


_NAMES = {"acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh", "atan": "arctan"}
_NAMES |= {"atanh": "arctanh", "pow": "power", "divide": "true_divide", "remainder": "mod", "atan2": "arctan2"}
_FLOATS = ("cos", "cosh", "exp", "expm1", "log", "log10", "log1p", "log2", "sin", "sinh", "sqrt", "tan", "tanh")


def np_function(name: str) -> Any:
    return getattr(mx.np, _NAMES.get(name, name))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: np_function(name) for name in (*_FLOATS, "acos", "acosh", "asin", "asinh", "atan", "atanh")},
    **{name: partial(wide, fn=np_function(name)) for name in ("abs", "negative", "sign")},
    **{name: _on_floats(np_function(name)) for name in ("ceil", "floor", "trunc")},
    **{name: _with_promotion(np_function(name)) for name in ("add", "subtract", "multiply", "divide")},
    **{
        name: _with_promotion(np_function(name), "float64")
        for name in ("maximum", "minimum", "pow", "remainder", "atan2", "hypot")
    },
    **{
        name: _with_promotion(np_function(name), "float64", same=False)
        for name in ("equal", "not_equal", "less", "less_equal")
    },
    **{name: _with_promotion(np_function(name), "float64", same=False) for name in ("greater", "greater_equal")},
    **{name: _bitwise(np_function(name)) for name in ("bitwise_and", "bitwise_or", "bitwise_xor")},
    **{f"logical_{name}": _compute_as_integers(np_function(f"bitwise_{name}")) for name in ("and", "or", "xor")},
    "bitwise_invert": _invert,
    "bitwise_left_shift": _with_promotion(_left_shift, "float64"),
    "bitwise_right_shift": _with_promotion(_right_shift, "float64"),
    "floor_divide": _with_promotion(_floor_divide, "float64"),
    "logical_not": lambda x, /: mx.np.logical_not(x),
    "conj": lambda x, /: x.copy(),
    "real": lambda x, /: x.copy(),
    "round": _on_floats(_round),
    "isfinite": _answer_for_integers(mx.np.isfinite, True),
    "isinf": _answer_for_integers(mx.np.isinf, False),
    "isnan": _answer_for_integers(mx.np.isnan, False),
}
"""The functions by their names in the standard."""
