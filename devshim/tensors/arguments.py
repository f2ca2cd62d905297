"""Convert a user's arguments into the form that an adapter expects: shapes, dtypes, devices, arrays."""

from __future__ import annotations

from math import isfinite, prod
from sys import float_info
from typing import TYPE_CHECKING, Any

import numpy as np

from devshim._compiler_marks import constant_under_compile
from devshim.devices import parsing
from devshim.devices.device import CPU, as_int
from devshim.devices.dtypes import DTYPES, is_number
from devshim.errors import ArgumentError, ConversionError, DeviceNotFoundError
from devshim.errors.formatting import describe
from devshim.errors.messages import bad_argument, cannot_share, masked, not_a_tensor
from devshim.registry import current, numpy_scalars, registry
from devshim.tensors import value_hints
from devshim.transfers import engine

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import SupportsIndex, TypeAlias

    from devshim.contract.backend import Backend, Tensor
    from devshim.devices.device import Device
    from devshim.devices.parsing import DeviceLike

    Shape: TypeAlias = SupportsIndex | Iterable[SupportsIndex]

_LISTS, _NUMBERS = (list, tuple), frozenset({bool, int, float, complex})


def target(backend: Backend, device: DeviceLike | None) -> Device:
    """Return the requested device, or the default one, after checking that it exists."""
    if device is not None:
        return engine.require(backend, parsing.device_of_argument(device))
    default = current.default_device()
    if default is CPU:
        return CPU
    try:
        return engine.require(backend, default)
    except DeviceNotFoundError as error:
        raise current.mention_environment(error) from error.__cause__


def dtype_name(backend: Backend, value: Any) -> str:
    """Return the name of a dtype in any form that `dtype` accepts."""
    if isinstance(value, str):
        return value
    name = getattr(value, "name", None) or numpy_name(value)
    if name in DTYPES:
        return str(name)
    return _native_name(backend.name, value)  # Paddle's dtypes have other names: FLOAT32


@constant_under_compile
def _native_name(backend: str, value: Any) -> str:
    """Return the name of a framework's own dtype, which has no attribute for it."""
    owner = registry.load(backend)
    name = str(value).rpartition(".")[2].removesuffix("'>")  # of "torch.float32" and "<class 'jax.numpy.float32'>"
    return name if name in DTYPES else owner.dtype_name(owner.zeros((1,), value, CPU))


_LARGEST = int(float_info.max)
_MOST = 2**59
"""The maximum number of elements: 16-byte elements whose bytes 63 bits can count."""
_FEW, _SHORT = 4, 2**14
"""The maximum rank and length of a shape that surely has fewer than `_MOST` elements."""


def shape(value: Any) -> tuple[int, ...]:
    """Return a shape given as an int or a sequence of ints as a tuple of non-negative ints."""
    given = (value,) if type(value) is int else tuple(value) if type(value) is list else value
    if type(given) is tuple and len(given) <= _FEW:
        for size in given:
            if type(size) is not int or not 0 <= size <= _SHORT:
                break
        else:
            return given
    try:
        sizes = (value,) if hasattr(value, "__index__") else tuple(value)
        found = tuple([as_int(size) for size in sizes])  # not a generator: torch.compile passes a generator on to sympy
    except (TypeError, ValueError) as error:  # TensorFlow raises a ValueError for a shape of unknown rank
        raise value_hints.no_shape(value) from error
    if any(size < 0 for size in found):
        raise value_hints.negative_length(value)
    if prod([size or 1 for size in found]) >= _MOST:
        raise bad_argument("shape", value, "of fewer than 2**59 elements", "no device can hold it: check the lengths")
    return found


def optional_shape(size: Any) -> tuple[int, ...]:
    """Return the shape of random numbers as a tuple of non-negative ints: empty for None, which is one number."""
    return () if size is None else shape(size)


def steps(start: object, stop: object, step: object) -> tuple[float, float, float]:
    """Return the bounds and the step of `arange` as finite real numbers that give a countable length."""
    low, high, by = finite("start", start), finite("stop", stop), finite("step", step)
    if by == 0:
        raise bad_argument("step", step, "a number other than 0", "ds.arange(start, stop, 1) counts in steps of 1")
    if (high - low) // by >= _MOST:
        raise bad_argument(
            "(start, stop, step)",
            (low, high, by),
            "of fewer than 2**59 values",
            "ds.linspace(start, stop, 100) makes 100 values in the same range",
        )
    return low, high, by


def dtype(backend: Backend, value: object) -> Any:
    """Return the framework's dtype for a name, a NumPy dtype or a native dtype; None stays None.

    Raises:
        ArgumentError: The value does not name a dtype.
        ConversionError: The framework has no such dtype.
    """
    if value is None or backend.is_dtype(value):
        return value
    name = value if isinstance(value, str) else numpy_name(value)
    if name not in DTYPES:
        raise value_hints.no_dtype(value, tuple(DTYPES), backend.title)
    return backend.dtype(name)


def numpy_name(value: object) -> str | None:
    """Return the name of a dtype of NumPy, given as a dtype or a class of numbers; None for anything else."""
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        return np.dtype(value).name
    return None


def numpy_array(value: object, copy: object = None) -> np.ndarray:
    """Return a NumPy array or scalar as an array that any framework can read: native byte order, plain dtype.

    Raises:
        CopyNeededError: ``copy`` is False, and the array has the other byte order.
    """
    if type(value) is np.ndarray:
        kind = value.dtype
        if kind.isbuiltin == 1 and kind.isnative and kind.kind in "biufc":  # fast path: nothing below applies
            return value
    if isinstance(value, np.generic):
        value = np.asarray(value)
    if not isinstance(value, np.ndarray):
        raise value_hints.no_array(value)
    require_numbers(value)
    if type(value) is not np.ndarray:
        _require_host(value)
    if value.dtype.isnative:
        return value
    if copy is False:
        raise cannot_share("this array", f"its byte order ({value.dtype.str}) is not this machine's")
    return value.astype(value.dtype.newbyteorder("="))


def require_numbers(array: np.ndarray) -> None:
    """Refuse arrays that no framework has: masked ones, and those of text, dates, objects or records."""
    kind = array.dtype
    if type(array) is not np.ndarray and isinstance(array, np.ma.MaskedArray):
        raise masked()
    if kind.hasobject or kind.kind in "SUMm" or issubclass(kind.type, np.void):  # ml_dtypes have the kind V, too
        msg = f"an array of dtype {kind} has no counterpart in a tensor framework"
        raise ConversionError(msg, "convert it to a number dtype first, for example a.astype('float32')")


def _require_host(array: np.ndarray) -> None:
    """Refuse arrays on a simulated GPU."""
    backend = registry.backend_for(array)
    if backend is not None and backend.device_of(array) is not CPU:
        msg = f"an array in host memory is needed, and this one is on {backend.device_of(array)}"
        raise ArgumentError(msg, "use ds.convert(a, ...), or bring it to the host first: ds.to_numpy(a)")


def number(name: str, value: Any) -> Any:
    """Return a Python or NumPy number as a Python number; refuse an int that is too large for float64."""
    if type(value) is float:
        return value
    if isinstance(value, int) and not -_LARGEST <= value <= _LARGEST:
        raise bad_argument(name, value, "a number that float64 can hold", "write a number below 1e308")
    if isinstance(value, np.generic) and value.dtype.kind in "biufc":
        return value.item()  # first: some NumPy numbers are also Python numbers
    if isinstance(value, (bool, int, float, complex)):
        return value
    raise bad_argument(name, value, "a number", value_hints.number_hint(name, value))


def fill_number(value: object) -> complex:
    """Return a fill value as a Python number; integers must fit in 64 bits, the most any framework has."""
    found: complex = number("fill_value", value)
    if isinstance(found, int) and not -(2**63) <= found < 2**64:
        raise value_hints.huge_fill(value)
    return int(found) if isinstance(found, int) and type(found) is not bool else found  # JAX refuses an `IntEnum`


def real(name: str, value: Any) -> Any:
    """Return a Python or NumPy number as a Python number that is not complex."""
    found = number(name, value)
    if isinstance(found, complex):
        raise bad_argument(name, value, "a real number", f"pass its real part: {name}={found.real}")
    return found


def finite(name: str, value: Any) -> Any:
    """Return a Python or NumPy number as a finite real Python number."""
    found = real(name, value)
    if not (isinstance(found, int) or isfinite(found)):
        raise bad_argument(name, value, "a finite number", f"write {name}=1.0, or another finite number")
    return found


def integer(name: str, value: Any) -> int:
    """Return an integer argument as a Python int."""
    try:
        return as_int(value)
    except TypeError as error:
        raise bad_argument(name, value, "an int", value_hints.int_hint(name, value)) from error


__all__ = [
    "dtype",
    "dtype_name",
    "fill_number",
    "finite",
    "integer",
    "number",
    "numpy_array",
    "numpy_name",
    "require_numbers",
]
__all__ += ["optional_shape", "real", "shape", "steps", "target", "tensor_of"]


def tensor_of(x: Tensor, call: str) -> tuple[Backend, Tensor]:
    """Return a tensor and its backend; for a Keras variable that is not a tensor, return the tensor that it stores.

    A NumPy scalar is returned as a 0-d array. For anything else, raise a `NotATensorError` that names the public call.
    """
    backend = registry.backend_for(x)
    if backend is not None:
        return backend, x
    scalar = numpy_scalars.with_backend(x)
    if scalar is not None:
        return scalar
    owner = registry.model_backend(x)
    leaves = [] if owner is None else [leaf for leaf in owner.leaves(x) if leaf.kind != "gradient"]
    if owner is None or len(leaves) != 1 or leaves[0].path:
        raise not_a_tensor(x, call, is_model=owner is not None)
    return owner, leaves[0].read()


def no_number_in(values: Any, label: str = "obj") -> str | None:
    """Return the text for the first item of nested lists that is not made of numbers, or None if there is none.

    NumPy and TensorFlow read text as numbers if there is a dtype, and PyTorch reads the bytes of ``[b"1"]``.

    Raises:
        ConversionError: An item is a masked array, or an array of anything but numbers.
    """
    if type(values) not in _LISTS or _NUMBERS.issuperset(map(type, values)):
        return None
    for i, value in enumerate(values):
        if isinstance(value, np.ndarray):
            require_numbers(value)
            found = None
        elif type(value) in _LISTS:
            found = no_number_in(value, f"{label}[{i}]")
        else:
            found = None if type(value) in _NUMBERS or _is_numeric(value) else f"{label}[{i}] is {describe(value)}"
        if found is not None:
            return found
    return None


def _is_numeric(value: object) -> bool:
    try:
        return is_number(np.asarray(value).dtype.name)
    except (TypeError, ValueError):  # an object's own __array__ may refuse
        return False
