"""Elementwise functions of the array API for MXNet, its dtypes, and ways around the kernels that it lacks.

Names of ``mx.np`` that compute with NumPy on the host are not used: their results would be copied there and back.
"""

from __future__ import annotations

from functools import partial, wraps
from typing import TYPE_CHECKING, Any

import mxnet as mx
import numpy as np

from devshim_backends._array_api.dtypes import KINDS, Dtypes
from devshim_backends._mxnet.internals import bfloat16, many_axes, whole_numbers
from devshim_backends._mxnet.internals.filling import full
from devshim_backends._mxnet.internals.native import BFLOAT16, CODES, IS_2, NAMES, device_code, dtype_code, is_exact
from devshim_backends._mxnet.internals.whole_numbers import tensor_if_large

if TYPE_CHECKING:
    from collections.abc import Callable

_NUMBERS = (bool, int, float, complex)


def name_of(x: Any) -> str:
    return NAMES[dtype_code(x)]


DT = Dtypes(
    {name: BFLOAT16 if name == "bfloat16" else np.dtype(name) for name in CODES},
    name_of,
    lambda cls: issubclass(cls, mx.nd.NDArray),
)


def cast(x: Any, dtype: Any) -> Any:
    if isinstance(x, np.ndarray):  # it would be cast by NumPy
        msg = "this is a NumPy array"
        raise TypeError(msg)
    name = DT.name(dtype)
    if name == "bool" and name_of(x) != "bool":
        return mx.np.not_equal(x, 0)
    return bfloat16.cast(x) if name == "bfloat16" else x.astype(name)


def scalar(value: Any, dtype: Any, x: Any) -> Any:
    return full((), value, dtype=DT.name(dtype))


def fill(condition: Any, value: float, x: Any) -> Any:
    """Return a tensor with a number where a condition is true.

    In 1.9, ``where`` has wrong gradients if it gets the number, and none if it gets a tensor without dimensions.
    """
    if len(x.shape) > len(condition.shape):
        condition = many_axes.broadcast(condition.astype("int32"), x.shape)
    return many_axes.where(condition, value if IS_2 else full(x.shape, value, dtype=name_of(x)), x)


def iota(count: int, x: Any) -> Any:
    return mx.np.arange(count, dtype="int64") if count else mx.np.zeros((0,), dtype="int64")


EXACT = frozenset((*KINDS["bool"], *KINDS["integral"]))
"""The dtypes of integers and bools."""
WIDE = frozenset(("int64", "uint64"))
"""The dtypes of integers that float64 rounds."""
BITS = {name: 8 * np.dtype(name).itemsize for name in EXACT}
"""The number of bits of each of them."""


def _as_floats(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that computes with integers and bools as floats, where MXNet would round the results."""
    return lambda x, /: fn(x.astype("float32") if name_of(x) in EXACT else x)


def _on_floats(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a rounding function that returns integers unchanged, as the standard requires."""
    return lambda x, /: fn(x) if DT.is_kind(x, "real floating") else x.copy()


def _answer_for_integers(fn: Callable[..., Any], answer: bool) -> Callable[..., Any]:
    return lambda x, /: fn(x) if DT.is_kind(x, "real floating") else mx.np.full(x.shape, answer, dtype="bool")


def _with_promotion(
    fn: Callable[..., Any], via: str = "", *, same: bool = True, floats: bool = False
) -> Callable[..., Any]:
    """Return a function of two tensors or numbers that promotes their dtypes as the standard does.

    Args:
        fn: The function.
        via: The dtype in which it computes with integers and bools; by default, their own or one with a kernel.
        same: True if the result has the promoted dtype. Otherwise it is a comparison, and a number may be outside the
            range of the integers.
        floats: True if integers and bools become floats.
    """

    def promote(x1: Any, x2: Any, /) -> Any:
        name = DT.result_name(x1, x2)
        if floats and name in EXACT:
            name = "float32"
        whole = name in EXACT
        inside = (via or RARE.get(name, name)) if whole else name
        if whole and (isinstance(x1, _NUMBERS) or isinstance(x2, _NUMBERS)):
            x1, x2 = tensor_if_large(x1), tensor_if_large(x2)
            if not same:
                x1, x2 = (whole_numbers.comparable(x, name) if isinstance(x, (int, float)) else x for x in (x1, x2))
                inside = "float64" if isinstance(x1, float) or isinstance(x2, float) else "int64"
        x1, x2 = (x1, x2) if name != "float64" else (x if is_exact(x) else scalar(x, name, x) for x in (x1, x2))
        xs = [x if isinstance(x, _NUMBERS) else x.astype(inside, copy=False) for x in (x1, x2)]
        found = fn(*xs) if any(isinstance(x, _NUMBERS) for x in xs) else fn(*many_axes.broadcast_both(*xs))
        return found.astype(name, copy=False) if same else found

    return promote


def _truth(x: Any) -> Any:
    """Return True for the values that are not zero, among which are NaNs and fractions."""
    if isinstance(x, _NUMBERS):
        return bool(x)
    return x if name_of(x) == "bool" else mx.np.not_equal(x, 0)


def _logical(name: str) -> Callable[..., Any]:
    native = getattr(mx.np, f"logical_{name}", None)
    if native is not None:
        return lambda x1, x2, /: native(_truth(x1), _truth(x2))
    ints = _compute_as_integers(np_function(f"bitwise_{name}"))  # 1.9
    return lambda x1, x2, /: ints(_truth(x1), _truth(x2))


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


def _by_dtype(floats: Callable[..., Any], narrow: Callable[..., Any], int64: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that computes with floats, with integers of up to 32 bits in float64, and with wider ones."""
    functions = _with_promotion(floats), _with_promotion(narrow, "float64"), _with_promotion(int64, "int64")

    def compute(x1: Any, x2: Any, /) -> Any:
        name = DT.result_name(x1, x2)
        return functions[(name in EXACT) + (name in WIDE)](x1, x2)

    return compute


def _by_width(floats: Callable[..., Any] | None, whole: Callable[[str], Callable[..., Any]]) -> Callable[..., Any]:
    """Return a function that computes with floats, and with whole numbers as int64, each dtype by its own function."""
    functions = {name: _with_promotion(whole(name), "int64") for name in EXACT}
    other = functions["int64"] if floats is None else _with_promotion(floats)
    return lambda x1, x2, /: functions.get(DT.result_name(x1, x2), other)(x1, x2)


def _power(name: str) -> Callable[..., Any]:
    return partial(whole_numbers.power, bits=BITS[name], signed=name[0] != "u")


def _right_shift(name: str) -> Callable[..., Any]:
    return whole_numbers.logical_right_shift if name == "uint64" else whole_numbers.right_shift


def _float_remainder(x1: Any, x2: Any, /) -> Any:
    found = mx.np.mod(x1, x2)
    if isinstance(x2, _NUMBERS):
        return found if x2 else mx.np.full(found.shape, float("nan"), dtype=found.dtype)
    return fill(mx.np.equal(x2, 0), float("nan"), found)  # MXNet returns 0


def _abs(x: Any) -> Any:
    if name_of(x) == "int64":
        return mx.np.maximum(x, mx.np.negative(x))  # MXNet's own has the precision of float64
    return mx.np.abs(x)


def _sign(x: Any, /) -> Any:
    if not DT.is_kind(x, "real floating"):
        return wide(x, mx.np.sign)
    return fill(mx.np.isnan(x), float("nan"), mx.np.sign(x))  # MXNet returns 0


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
    """Return a function's result, computed in a dtype that has a kernel, and cast back."""
    name = name_of(x)
    return fn(x) if name not in RARE else cast(fn(x.astype(RARE[name])), name)


def computed_in_float32(fn: Callable[..., Any], *, on_host: bool = False) -> Callable[..., Any]:
    """Return a function that computes with float16 in float32, and rounds its results.

    MXNet's linear algebra has no float16. The error comes when a result is read, and can reach other results.

    Args:
        fn: The function.
        on_host: True if only the host lacks it.
    """

    @wraps(fn)
    def compute(*xs: Any, **options: Any) -> Any:
        if name_of(xs[0]) != "float16" or (on_host and not device_code(xs[0]) & 1):
            return fn(*xs, **options)
        found = fn(*(x.astype("float32") for x in xs), **options)
        if not isinstance(found, tuple):
            return found.astype("float16")
        results = [x.astype("float16") for x in found]
        return type(found)(*results) if hasattr(found, "_fields") else tuple(results)

    return compute


_NAMES = {"acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh", "atan": "arctan"}
_NAMES |= {"atanh": "arctanh", "pow": "power", "divide": "true_divide", "remainder": "mod", "atan2": "arctan2"}
_FLOATS = ("cos", "cosh", "exp", "expm1", "log", "log10", "log1p", "log2", "sin", "sinh", "sqrt", "tan", "tanh")


def np_function(name: str) -> Any:
    return getattr(mx.np, _NAMES.get(name, name))


COMPARISONS = {
    name: whole_numbers.comparison(name)
    for name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
}
"""The comparisons of two tensors of one dtype that has a kernel."""

FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: _as_floats(np_function(name)) for name in (*_FLOATS, "acos", "acosh", "asin", "asinh", "atan", "atanh")},
    "abs": partial(wide, fn=_abs),
    "negative": partial(wide, fn=mx.np.negative),
    "sign": _sign,
    **{name: _on_floats(np_function(name)) for name in ("ceil", "floor", "trunc")},
    **{name: _with_promotion(np_function(name)) for name in ("add", "subtract", "multiply", "maximum", "minimum")},
    **{name: _with_promotion(np_function(name), floats=True) for name in ("divide", "atan2", "hypot")},
    "pow": _by_width(mx.np.power, _power),
    "remainder": _by_dtype(_float_remainder, mx.np.mod, whole_numbers.remainder),
    **{name: _with_promotion(fn, same=False) for name, fn in COMPARISONS.items()},
    **{name: _bitwise(np_function(name)) for name in ("bitwise_and", "bitwise_or", "bitwise_xor")},
    **{f"logical_{name}": _logical(name) for name in ("and", "or", "xor")},
    "bitwise_invert": _invert,
    "bitwise_left_shift": _with_promotion(whole_numbers.left_shift, "int64"),
    "bitwise_right_shift": _by_width(None, _right_shift),
    "floor_divide": _by_dtype(_floor_divide, _floor_divide, whole_numbers.floor_divide),
    "logical_not": lambda x, /: mx.np.logical_not(x),
    "conj": lambda x, /: x.copy(),
    "real": lambda x, /: x.copy(),
    "round": _on_floats(many_axes.round_to_even),
    "isfinite": _answer_for_integers(mx.np.isfinite, True),
    "isinf": _answer_for_integers(mx.np.isinf, False),
    "isnan": _answer_for_integers(mx.np.isnan, False),
}
"""The functions by their names in the standard."""
