"""Check that the dtype of a new tensor can represent the Python numbers that it is made from.

Lists of numbers are checked by the adapters, which read them: see `devshim.devices.ranges`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from devshim.devices import ranges
from devshim.errors import ConversionError
from devshim.errors.messages import bad_argument

__all__ = ["CALLS", "require_complex", "require_fit"]

CALLS = frozenset({"arange", "asarray", "full", "linspace"})
"""The calls whose values are given as Python numbers."""


def require_fit(call: str, args: tuple[Any, ...], name: str) -> None:
    """Raise `ConversionError` for a number that the dtype would silently change into another one.

    Args:
        call: One of `CALLS`.
        args: The arguments of the adapter's method before the dtype.
        name: The name of the dtype.
    """
    if call == "arange":
        start, stop, step = args
        _require_range(start, stop, step, name)
        return
    for value in args[1:] if call == "full" else args[:2]:
        if not isinstance(value, (list, tuple, np.ndarray)):
            ranges.require_fit(value, name)


def require_complex(source: str, name: str) -> None:
    """Raise `ConversionError` if a cast would drop the imaginary parts of tensors or arrays.

    The array API standard does not permit such a cast: a program names the part that it wants.

    Args:
        source: The name of the dtype of the values, a complex one.
        name: The name of the wanted dtype.
    """
    if not name.startswith("complex"):
        msg = f"{name} has no imaginary part, and the values are {source}"
        hint = "compare it with 0: x != 0" if name == "bool" else "pass its real part: ds.namespace(x).real(x)"
        raise ConversionError(msg, hint)


def _require_range(start: float, stop: float, step: float, name: str) -> None:
    """Check the first and the last value; the frameworks disagree about a fraction as the step of integers."""
    if name == "bool":
        raise bad_argument("dtype", name, "a dtype of numbers", "leave dtype out, and cast the result")
    if "int" in name and step != int(step):
        wanted = f"a floating dtype for a step of {step}"
        raise bad_argument("dtype", name, wanted, "write dtype='float32', and cast the result")
    count = -int((start - stop) // step)
    if count > 0:
        ranges.require_fit(start, name)
        ranges.require_fit(start + (count - 1) * step, name)
