"""Functions that create NumPy arrays on the host or on a simulated GPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from devshim.contract.backend import Tensor
from devshim.devices.device import Device
from devshim.devices.ranges import are_wide_integers, read_numbers, require_values_fit

from .tensors import NumpyTensors


def _full(shape: tuple[int, ...], value: float) -> np.ndarray:
    """Return the same as ``np.full`` for a Python number, in half the time."""
    array = np.empty(shape, type(value))
    array.fill(value)
    return array


def _ones(shape: tuple[int, ...], dtype: Any = float) -> np.ndarray:
    array = np.empty(shape, dtype)
    array.fill(1)
    return array


_INTEGERS = {np.dtype(kind): np.dtype(kind).name for kind in (*np.typecodes["AllInteger"], bool)}


def _asarray(values: Any) -> np.ndarray | None:
    array = np.array(values)
    return None if _has_wide_integers(values, array) else array


def _has_wide_integers(values: Any, array: np.ndarray) -> bool:
    """Return True if NumPy made objects, or floats of integers only, which `read_numbers` reads in another way."""
    return array.dtype.hasobject or are_wide_integers(values, array)


HOST_MAKERS: dict[str, Any] = {
    "asarray": _asarray,
    "empty": np.empty,
    "full": _full,
    "ones": _ones,
    "zeros": np.zeros,
}
"""See `FastPaths.host_makers`."""


class NumpyCreation(NumpyTensors):
    """The mixin for creation functions. NumPy makes the array, and `to_device` labels it with its simulated GPU."""

    def asarray(self, values: object, dtype: Any | None, device: Device) -> Tensor:
        try:
            name = _INTEGERS.get(np.dtype(dtype))  # NumPy 1 wraps integers
            if name is not None:
                require_values_fit(values, name)
            array = np.array(values, dtype=dtype)
            if dtype is None and _has_wide_integers(values, array):
                array = read_numbers(values)
        except (OverflowError, TypeError):  # its error for a complex number does not name the dtype
            if dtype is None:
                raise
            require_values_fit(values, np.dtype(dtype).name)
            array = read_numbers(values, np.dtype(dtype).name).astype(dtype)  # bfloat16 does not read them
        except Warning as warning:  # NumPy 1.23 warns about ragged values; -W error turns the warning into an error
            raise ValueError(str(warning)) from warning
        if array.dtype.kind in "OSU" or issubclass(array.dtype.type, np.void):  # ml_dtypes have the kind V, too
            msg = f"they make an array of dtype {array.dtype}"
            raise ValueError(msg)
        return self.to_device(array, device)

    def empty(self, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        return self.to_device(np.empty(shape, dtype), device)

    def full(self, shape: tuple[int, ...], value: complex, dtype: Any | None, device: Device) -> Tensor:
        return self.to_device(np.full(shape, value, dtype), device)

    def zeros(self, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        return self.to_device(np.zeros(shape, dtype), device)

    def ones(self, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        return self.to_device(_ones(shape, float if dtype is None else dtype), device)

    def arange(self, start: float, stop: float, step: float, dtype: Any | None, device: Device) -> Tensor:
        return self.to_device(np.arange(start, stop, step, dtype=dtype), device)

    def linspace(
        self, start: float, stop: float, num: int, dtype: Any | None, device: Device, endpoint: bool
    ) -> Tensor:
        return self.to_device(np.linspace(start, stop, num, endpoint=endpoint, dtype=dtype), device)

    def eye(self, n_rows: int, n_cols: int, k: int, dtype: Any | None, device: Device) -> Tensor:
        return self.to_device(np.eye(n_rows, n_cols, k, dtype or float), device)
