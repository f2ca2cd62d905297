"""Numbers that a dtype cannot represent: refused on every framework, in one text, or kept out of a range.

The frameworks themselves differ: some wrap integers, make an arbitrary integer of NaN, or drop an imaginary part
silently, and the others raise their own errors.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from devshim.errors import ConversionError

__all__ = ["keep_below", "largest_draw", "nearest_bfloat16"]
__all__ += ["require_all_fit", "require_fit", "require_values_fit", "surely_fit"]


_BOUNDS = {f"int{bits}": (-(1 << bits - 1), 1 << bits - 1) for bits in (2, 4, 8, 16, 32, 64)}
_BOUNDS |= {f"u{name}": (0, 2 * end) for name, (_, end) in _BOUNDS.items()}
"""The name of an integer dtype -> its least number, and the number after its largest one."""
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
            wider = "a floating dtype" if name.endswith("64") else "dtype='int64', or a floating dtype"
            msg = f"{value} does not fit into {name}"
            raise ConversionError(msg, f"pass {wider}")


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
    """Raise `ConversionError` if a dtype would silently change a number of an array into another one."""
    if array.size and array.dtype.kind in "iufc":
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
        require_all_fit(np.asarray(values) if array is None else array, name)


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
