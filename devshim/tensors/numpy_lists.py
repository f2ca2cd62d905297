"""Lists that contain NumPy arrays or NumPy scalars in host memory, and become a tensor of any framework.

The dtype of such a list follows the rule of lists of tensors, on every framework and with any default dtype:

* The common dtype of the arrays; without arrays, that of the scalars. Two kinds give a dtype of the higher kind.
* A Python number, or a scalar among arrays, takes the first of these dtypes that can represent it.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from devshim.devices.device import CPU
from devshim.devices.dtypes import RANKS, dtype_name, is_numpy_dtype, numpy_dtype, promoted
from devshim.devices.ranges import require_all_fit
from devshim.tensors import arguments, default_dtypes

if TYPE_CHECKING:
    from devshim.contract.backend import Backend

__all__ = ["read_list"]

_LISTS = (list, tuple)
_NUMBERS: tuple[type, ...] = (bool, int, float, complex)
_PLAIN = frozenset(_NUMBERS)
_READABLE = (*_NUMBERS, np.generic)
_KINDS: dict[str, type] = {"b": bool, "i": int, "u": int, "f": float, "c": complex, "V": float}
"""NumPy's letter for a kind of dtype -> Python's number; bfloat16 has the letter V."""


def read_list(backend: Backend, values: Any) -> np.ndarray | None:
    """Return nested lists as an array in the dtype that the tensor has; None if they contain no NumPy values.

    Raises:
        ConversionError: An array is masked or not made of numbers, or a number does not fit the dtype.
        ValueError: The rows are not equally long.
    """
    found = _Found()
    found.collect(values)
    if found.has_others or not (found.arrays or found.scalars):
        return None
    dtype = found.common_dtype(backend)
    array = np.asarray(values, None if found.numbers else dtype)
    if array.dtype.hasobject and not all(isinstance(value, _READABLE) for value in array.flat):  # NumPy before 1.24
        msg = "the rows are not equally long"
        raise ValueError(msg)
    if dtype is None or array.dtype == dtype:
        arguments.require_numbers(array)
        return array
    require_all_fit(array, dtype_name(dtype))
    return np.asarray(values, dtype)


class _Found:
    """The dtypes in nested lists, in the order of their first values.

    Attributes:
        arrays: The dtypes of arrays.
        scalars: The dtypes of scalars.
        numbers: The types of Python numbers.
        has_others: True if there are other objects.
    """

    def __init__(self) -> None:
        self.arrays: dict[np.dtype, None] = {}
        self.scalars: dict[np.dtype, None] = {}
        self.numbers: set[type] = set()
        self.has_others = False

    def collect(self, values: Any) -> None:
        """Add the values of a list."""
        kinds = set(map(type, values))
        if kinds <= _PLAIN:
            self.numbers |= kinds
            return
        for value in values:
            if type(value) in _LISTS:
                self.collect(value)
            elif isinstance(value, np.ndarray):
                self.arrays[arguments.numpy_array(value).dtype] = None
            elif isinstance(value, np.generic) and is_numpy_dtype(value.dtype):
                self.scalars[value.dtype] = None
            elif type(value) in _PLAIN:
                self.numbers.add(type(value))
            else:
                self.has_others = True

    def common_dtype(self, backend: Backend) -> np.dtype | None:
        """Return the dtype of the tensor; None if NumPy chooses it, as for 8-bit floats."""
        if self.arrays:
            self.numbers |= {_KINDS[dtype.kind] for dtype in self.scalars}
        dtypes = list(self.arrays or self.scalars)
        names = [dtype_name(dtype) for dtype in dtypes]
        if RANKS.keys() >= set(names):
            names += [_name_for(backend, kind, names) for kind in self.numbers]
            return numpy_dtype(reduce(promoted, names))
        return dtypes[0] if len(dtypes) == 1 else None


def _name_for(backend: Backend, kind: type, names: list[str]) -> str:
    """Return the dtype of a Python number: the first one that can represent it, or the default of its kind."""
    rank = _NUMBERS.index(kind)
    fitting = next((name for name in names if RANKS[name] >= rank), None)
    if fitting is not None:
        return fitting
    default = default_dtypes.default_for("full", ((), kind(1)))
    return backend.dtype_name(backend.asarray(kind(1), None, CPU)) if default is None else default
