"""Turning what a user passes into what an adapter may assume: shapes, dtypes, devices, arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from devshim import _context, _spec, _transfer
from devshim._refusals import bad_argument
from devshim.errors import ArgumentError, ConversionError

if TYPE_CHECKING:
    from devshim._spec import DeviceLike
    from devshim.backend import Backend
    from devshim.device import Device

DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
)
"""The array-API names of the dtypes, and bfloat16."""


def target(backend: Backend, device: DeviceLike | None) -> Device:
    """Return the device asked for, or the default one; it exists."""
    return _transfer.require(backend, _context.default_device() if device is None else _spec.device(device))


def shape(value: Any) -> tuple[int, ...]:
    """Return a shape given as an int or a sequence of ints as a tuple of non-negative ints."""
    try:
        sizes = (value,) if hasattr(value, "__index__") else tuple(value)
        found = tuple(_index(size) for size in sizes)
    except TypeError as error:
        raise bad_argument("shape", value, "an int or a tuple of ints") from error
    if any(size < 0 for size in found):
        raise bad_argument("shape", value, "made of non-negative ints")
    return found


def _index(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError("a length is not a bool")
    number: int = value.__index__() if hasattr(value, "__index__") else _refuse(value)
    return number


def _refuse(value: object) -> int:
    raise TypeError(f"a length is an int, not {type(value).__name__}")


def dtype(backend: Backend, value: object) -> Any:
    """Return the framework's own dtype for a name, a NumPy dtype or one of its own; None stays None.

    Raises:
        ArgumentError: The value names no dtype.
        ConversionError: The framework has no such dtype.
    """
    if value is None or backend.is_dtype(value):
        return value
    name = value if isinstance(value, str) else _numpy_name(value)
    if name not in DTYPES:
        raise bad_argument("dtype", value, f"one of {', '.join(DTYPES)}, a NumPy dtype, or {backend.title}'s own")
    return backend.dtype(name)


def _numpy_name(value: object) -> str | None:
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        return np.dtype(value).name
    return None


def numpy_array(value: object) -> np.ndarray:
    """Return a NumPy array or scalar as an array any framework can read: native byte order, plain dtype."""
    if isinstance(value, np.generic):
        value = np.asarray(value)
    if not isinstance(value, np.ndarray):
        raise bad_argument("a", value, "a NumPy array")
    if value.dtype.hasobject or value.dtype.fields is not None or value.dtype.kind in "SUMm":
        raise ConversionError(
            f"an array of dtype {value.dtype} has no counterpart in a tensor framework",
            "convert it to a number dtype first, for example a.astype('float32')",
        )
    return value if value.dtype.isnative else value.astype(value.dtype.newbyteorder("="))


def number(name: str, value: Any) -> Any:
    """Return a Python or NumPy number as a Python number."""
    if isinstance(value, (bool, int, float, complex)):
        return value
    if isinstance(value, (np.generic, np.ndarray)) and np.ndim(value) == 0 and np.asarray(value).dtype.kind in "biufc":
        return value.item()
    raise bad_argument(name, value, "a number")


def integer(name: str, value: Any) -> int:
    """Return an integer argument as a Python int."""
    try:
        return _index(value)
    except TypeError as error:
        raise bad_argument(name, value, "an int") from error


__all__ = ["DTYPES", "ArgumentError", "dtype", "integer", "number", "numpy_array", "shape", "target"]
