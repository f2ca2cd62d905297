"""Numbers that a dtype cannot represent: refused on every framework, in one text, or kept out of a range.

The frameworks themselves differ: some wrap integers, make an arbitrary integer of NaN, or drop an imaginary part
silently, and the others raise their own errors.
"""

from __future__ import annotations

from functools import lru_cache
from sys import float_info
from typing import Any

import numpy as np

from devshim.errors import ConversionError

__all__ = ["are_wide_integers", "keep_below", "largest_draw", "nearest_bfloat16", "read_numbers"]
__all__ += ["require_all_fit", "require_fit", "require_values_fit", "surely_fit"]


_BOUNDS = {f"int{bits}": (-(1 << bits - 1), 1 << bits - 1) for bits in (2, 4, 8, 16, 32, 64)}
_BOUNDS |= {f"u{name}": (0, 2 * end) for name, (_, end) in _BOUNDS.items()}
"""The name of an integer dtype -> its least number, and the number after its largest one."""
_LARGEST = int(float_info.max)
_ALL = (-np.inf, np.inf)
"""The bounds of other dtypes: their numbers are rounded."""


def require_fit(value: Any, name: str) -> None:
    """Raise `ConversionError` for a number that a dtype would silently change into another one.

    Args:
        value: A Python number. A float that is rounded, or that overflows to infinity, is not an error.
        name: The name of the dtype.
    """
    if isinstance(value, complex):
        if not name.startswith("complex"):
            msg = f"{name} cannot store the complex number {value}"
            raise ConversionError(msg, "pass value.real")
    elif name in _BOUNDS:
        least, end = _BOUNDS[name]
        if not least - 1 < value < end:  # NaN fails both comparisons; floats are truncated
            narrow = not name.endswith("64") and not (type(value) is int and value.bit_length() > 63)
            wider = "dtype='int64', or a floating dtype" if narrow else "a floating dtype"
            raise _unfit(value, name, f"pass {wider}")
    elif type(value) is int and not -_LARGEST <= value <= _LARGEST and name != "bool":
        raise _unfit(value, name, "pass a number between -1e308 and 1e308")


def _unfit(value: Any, name: str, hint: str) -> ConversionError:
    """Return the error for a number; Python itself refuses to write integers of more than 4300 digits."""
    is_long = type(value) is int and value.bit_length() > 128
    shown = f"an integer of {value.bit_length()} bits" if is_long else value
    return ConversionError(f"{shown} does not fit into {name}", hint)


def surely_fit(values: Any, name: str) -> bool:
    """Return True if Python numbers, or lists of them, are known to fit a dtype; False if an array must be looked at.

    Python compares the numbers of a list before NumPy has made an array of them.
    """
    if type(values) not in (list, tuple):
        return type(values) in _PLAIN and _are_in_range([values], name)
    kinds = set(map(type, values))
    if kinds <= _PLAIN:
        return not values or _are_in_range(values, name)
    return kinds <= {list, tuple} and all(surely_fit(each, name) for each in values)


_PLAIN = frozenset({bool, int})
"""The types of numbers that are compared exactly, and never NaN."""


def _are_in_range(numbers: Any, name: str) -> bool:
    least, end = _BOUNDS.get(name, _ALL)
    return bool(least <= min(numbers) and max(numbers) < end)


def require_all_fit(array: np.ndarray, name: str) -> None:
    """Raise `ConversionError` if a dtype would silently change a number of an array into another one.

    An array of objects contains integers of more than 64 bits, or is not made of numbers and not checked.
    """
    if array.dtype.hasobject:
        for value in array.flat if _are_numbers(array) else ():
            require_fit(value, name)
    elif array.size and array.dtype.kind in "iufc":
        is_complex = array.dtype.kind == "c"
        extremes = (array.flat[np.argmax(array.imag != 0)],) if is_complex else (array.min(), array.max())
        for extreme in extremes:
            require_fit(extreme.item(), name)


def require_values_fit(values: Any, name: str, array: np.ndarray | None = None) -> None:
    """Raise `ConversionError` if a dtype would silently change one of the numbers of a list, a tuple or an array.

    Args:
        values: The numbers, as a user gave them. Lists of integers that surely fit need no array.
        name: The name of the dtype.
        array: The numbers as an array, if there is one already.
    """
    if not surely_fit(values, name):
        found = np.asarray(values) if array is None else array
        require_all_fit(np.array(values, object) if are_wide_integers(values, found) else found, name)


def read_numbers(values: Any, name: str | None = None) -> np.ndarray:
    """Return Python numbers as an array that can be converted to a dtype; an array of objects if others are among them.

    NumPy makes objects of integers of more than 64 bits, and floats of a list with integers that no dtype of integers
    holds together. They are rounded in a floating dtype, as in a list that also has floats, and otherwise refused.

    Args:
        values: The numbers, as a user gave them.
        name: The name of the dtype; None for the default of the framework.

    Raises:
        ConversionError: An integer does not fit the dtype; without a dtype, int64.
    """
    array = np.array(values)
    if array.dtype.hasobject or (array.dtype.kind == "u" and name is None):
        exact = array.astype(object)
    elif are_wide_integers(values, array):
        exact = np.array(values, object)
    else:
        return array
    if not _are_numbers(exact):
        return array
    if name is None and not any(isinstance(value, (float, complex, np.inexact)) for value in exact.flat):
        name = "int64"
    wide = "complex128" if any(map(np.iscomplexobj, exact.flat)) else "float64"
    require_all_fit(exact, name or wide)
    if name in _BOUNDS:
        wide = "uint64" if name == "uint64" else "int64"
    return exact.astype("bool" if name == "bool" else wide)


def are_wide_integers(values: Any, array: np.ndarray) -> bool:
    """Return True if NumPy has made an array of floats from integers only."""
    return array.dtype.kind == "f" and array.size > 0 and _are_plain(values)


def _are_plain(values: Any) -> bool:
    if type(values) not in (list, tuple):
        return type(values) in _PLAIN
    return all(map(_are_plain, values))


def _are_numbers(array: np.ndarray) -> bool:
    return all(isinstance(value, (int, float, complex, np.number, np.bool_)) for value in array.flat)


def keep_below(values: Any, low: float, high: float, name: str | None) -> Any:
    """Return float64 draws that stay below ``high`` in a dtype: NumPy's scaling can reach it, and so can rounding.

    Args:
        values: The draws of NumPy, from ``low`` to ``high``: an array, or a float.
        low: The lower bound.
        high: The bound, which is excluded.
        name: The name of the dtype to which the draws are converted; None for float64.
    """
    if name not in _ROUNDED:
        name = "float64"
    return np.minimum(values, largest_draw(low, high, name)) if low or name != "float64" else values


_ROUNDED = ("float16", "float32", "bfloat16")
"""The floating dtypes to which float64 is rounded."""


def nearest_bfloat16(values: np.ndarray) -> np.ndarray:
    """Return float32 values as the nearest float32 numbers that bfloat16 can represent, ties to even.

    A NaN gets a bit that bfloat16 has, so that it does not become infinite.
    """
    bits = values.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
    quiet = np.where(np.isnan(values), bits | np.uint32(0x400000), bits)
    return np.where(np.isfinite(values), rounded, quiet).astype(np.uint32).view(np.float32)


def largest_draw(low: float, high: float, name: str) -> float:
    """Return the limit of draws from ``[low, high)`` in a floating dtype; ``low`` if no number is between the two.

    The frameworks' scaling and rounding can reach ``high``.
    """
    return max(float(low), _largest_below(high, name))


@lru_cache(maxsize=256)
def _largest_below(high: float, name: str) -> float:
    """Return the largest number of a floating dtype that is less than ``high``."""
    if name == "bfloat16":
        return _largest_bfloat16_below(high)
    dtype = np.dtype(name).type
    with np.errstate(over="ignore"):
        found = dtype(high)
        return float(found if float(found) < high else np.nextafter(found, dtype(-np.inf)))


def _largest_bfloat16_below(high: float) -> float:
    """Return the largest number of bfloat16 below another, whose upper half of bits it has, without ``ml_dtypes``."""
    bits = np.array(high, "float32").view("uint32")
    cut = (bits & np.uint32(0xFFFF0000)).view("float32")  # towards zero
    if float(cut) < high:
        return float(cut)
    step = np.uint32(0x10000)
    if float(cut) == 0.0:
        return float(np.array(0x80010000, "uint32").view("float32"))
    moved = cut.view("uint32") - step if float(cut) > 0 else cut.view("uint32") + step
    return float(np.array(moved, "uint32").view("float32"))
