"""Numbers that a dtype cannot represent: refused on every framework, in one text.

The frameworks themselves differ: some wrap integers, make an arbitrary integer of NaN, or drop an imaginary part
silently, and the others raise errors of their own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from devshim.errors import ConversionError

__all__ = ["require_all_fit", "require_fit"]


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
    elif name.startswith(("int", "uint")):
        bits = int(name.lstrip("uint"))
        least = 0 if name[0] == "u" else -(1 << bits - 1)
        if not least - 1 < value < least + (1 << bits):  # NaN fails both comparisons; floats are truncated
            wider = "dtype='int64', or a floating dtype" if bits < 64 else "a floating dtype"
            msg = f"{value} does not fit into {name}"
            raise ConversionError(msg, f"pass {wider}")


def require_all_fit(array: np.ndarray, name: str) -> None:
    """Raise `ConversionError` if a dtype would silently change a number of an array into another one."""
    if array.size and array.dtype.kind in "iufc":
        extremes = (array.flat[0],) if array.dtype.kind == "c" else (array.min(), array.max())
        for extreme in extremes:
            require_fit(extreme.item(), name)
