"""The default dtypes of new tensors: `set_default_dtype`.

Requirements of this module:

* Without a setting, each framework's own defaults apply, which differ (``docs/defaults.md`` lists them). With one,
  every creation function gives the same dtype on every framework.
* The setting belongs to the process, like `use`: a program writes it once, and its worker threads also see it.
* No setting of a framework changes, so the framework's own functions are unchanged.
* The setting is a plain global variable, so that torch.compile compiles a function again after a change.
"""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

import numpy as np

from devshim.devices.dtypes import DTYPES
from devshim.errors import ArgumentError
from devshim.errors.messages import bad_argument
from devshim.registry import tracing

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["default_for", "set_default_dtype"]

_FLOATS = tuple(name for name in DTYPES if "float" in name)
_INTS = tuple(name for name in DTYPES if "int" in name)
_NUMPY_KINDS = {"i": "int", "u": "int", "f": "float", "c": "complex"}
_PYTHON_KINDS = ((complex, "complex"), (float, "float"), (builtins.int, "int"), (bool, ""))
_PYTHON_TYPES = frozenset(kind for kind, _ in _PYTHON_KINDS)
_INTEGER_CALLS = frozenset({"permutation", "randint"})
_KIND_OF_VALUES = frozenset({"arange", "full", "linspace"})

CHOSEN: Mapping[str, str] = {}
"""The kind of a Python number (``"float"``, ``"int"``, ``"complex"``) -> its dtype; replaced as a whole."""


def set_default_dtype(dtype: object, *, int: object = "int64") -> None:
    """Set the dtypes of new tensors for the whole process; None restores the defaults of each framework.

    Args:
        dtype: The dtype of floats: ``"float32"``, ``"float64"``, ``"float16"``, ``"bfloat16"``, or NumPy's dtype of
            that name. Complex numbers become complex128 with ``"float64"``, and complex64 with the other dtypes. None
            restores the defaults of each framework for all kinds of numbers.
        int: The dtype of integers, such as ``"int64"`` or ``"int32"``; None for each framework's default.

    A call without ``dtype=`` and ``like=`` then acts as if the dtype had been written: `zeros`, `ones`, `empty`, `eye`,
    `linspace` and ``random`` make floats; `asarray` of Python numbers, `full` and `arange` follow the kind of their
    numbers. Booleans stay bool. Tensors, arrays and NumPy scalars keep their dtype, also in lists. The framework's own
    functions do not change. A function that TensorFlow has compiled keeps the dtypes that it was compiled with.

    Raises:
        ArgumentError: The dtype is not a floating one, or ``int`` is not an integer one.
        TracingError: The call is inside a compiled function.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> ds.set_default_dtype("float32", int="int32")
        >>> ds.dtype_of(ds.ones(2)), ds.dtype_of(ds.asarray([1, 2])), ds.dtype_of(ds.arange(0.0, 1.0, 0.5))
        ('float32', 'int32', 'float32')
        >>> ds.set_default_dtype(None)
        >>> ds.dtype_of(ds.ones(2))
        'float64'
    """
    global CHOSEN
    tracing.refuse("set_default_dtype", "set it outside, before the compiled function is called")
    CHOSEN = _read(dtype, int)


def _read(dtype: object, integer: object) -> dict[str, str]:
    """Return the dtype of each kind of Python number, from the arguments of `set_default_dtype`."""
    if dtype is None:
        if integer not in (None, "int64"):
            msg = f"ds.set_default_dtype was given None for floats and int={integer!r}"
            raise ArgumentError(msg, f"name both: ds.set_default_dtype('float32', int={integer!r})")
        return {}
    floating = _name_of(dtype, "dtype", _FLOATS, "float32")
    found = {"float": floating, "complex": "complex128" if floating == "float64" else "complex64"}
    return found if integer is None else {**found, "int": _name_of(integer, "int", _INTS, "int64")}


def _name_of(value: Any, argument: str, names: tuple[str, ...], example: str) -> str:
    is_numpy = isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic))
    name = np.dtype(value).name if is_numpy else value
    if not isinstance(name, str) or name not in names:
        label = "" if argument == "dtype" else f"{argument}="
        hint = f"write the name: ds.set_default_dtype({label}{example!r})"
        if label:
            hint = f"write the name: ds.set_default_dtype('float32', {label}{example!r})"
        raise bad_argument(argument, value, f"one of {', '.join(names)}", hint)
    return name


def default_for(call: str, args: tuple[Any, ...]) -> str | None:
    """Return the name of the dtype that a creation call without one gets; None: the framework's own default.

    Args:
        call: The adapter's method, such as ``"zeros"``.
        args: Its arguments before the dtype.
    """
    found = CHOSEN
    return found.get(_kind(call, args)) if found else None


def _kind(call: str, args: tuple[Any, ...]) -> str:
    """Return the kind of number that a call makes: "float", "int", "complex", or "" for booleans and no numbers."""
    if call == "asarray":
        return _kind_of_values(args[0])
    if call in _KIND_OF_VALUES:
        return _kind_of_numbers(call, args[1:] if call == "full" else args)
    if call == "bernoulli":
        return ""
    return "int" if call in _INTEGER_CALLS else "float"


def _kind_of_numbers(call: str, numbers: tuple[Any, ...]) -> str:
    if any(isinstance(number, complex) for number in numbers):
        return "complex"
    if call == "linspace" or not all(isinstance(number, builtins.int) for number in numbers):
        return "float"
    return "" if call == "full" and isinstance(numbers[0], bool) else "int"


def _kind_of_values(values: object) -> str:
    """Return the kind of Python numbers, single or in nested lists; torch.compile can trace it for these."""
    found: set[type] = set()
    _collect_types(values, found)
    for kind, name in _PYTHON_KINDS:
        if kind in found and found <= _PYTHON_TYPES:
            return name
    return "float" if not found else _kind_of_array(values)


def _collect_types(values: Any, found: set[type]) -> None:
    kind = type(values)
    if kind is list or kind is tuple:
        for value in values:
            _collect_types(value, found)
    else:
        found.add(kind)


def _kind_of_array(values: object) -> str:
    """Return the kind of values that include NumPy's numbers."""
    try:
        kind = np.asarray(values).dtype.kind
    except (TypeError, ValueError, Warning):  # the adapter raises its own error for these values
        return ""
    return _NUMPY_KINDS.get(kind, "")
