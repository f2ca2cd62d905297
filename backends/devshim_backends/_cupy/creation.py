"""Functions that create arrays: CuPy's on a GPU, and NumPy's functions of the same names in host memory."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from devshim.contract.backend import Tensor
from devshim.devices.device import CPU, Device
from devshim.devices.ranges import read_numbers, require_all_fit
from devshim_backends._cupy.transfers.internals.peer_copies import to_gpu

from .scopes import current_device
from .tensors import CupyTensors


def library(device: Device) -> Any:
    """Return the library whose arrays are on a device."""
    return np if device is CPU else cupy


class CupyCreation(CupyTensors):
    """The mixin for creation functions."""

    def asarray(self, values: object, dtype: Any | None, device: Device) -> Tensor:
        array = read_numbers(values, None if dtype is None else np.dtype(dtype).name)
        if dtype is not None:
            require_all_fit(array, np.dtype(dtype).name)
            array = array.astype(dtype)
        if array.dtype.hasobject or array.dtype.kind in "SU":
            msg = f"they make an array of dtype {array.dtype}"
            raise ValueError(msg)
        return array if device is CPU else to_gpu(array, device)

    def empty(self, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        return self._make(device, "empty", shape, dtype=_default_to_float(dtype))

    def full(self, shape: tuple[int, ...], value: complex, dtype: Any | None, device: Device) -> Tensor:
        return self._make(device, "full", shape, value, dtype=dtype)

    def zeros(self, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        return self._make(device, "zeros", shape, dtype=_default_to_float(dtype))

    def ones(self, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        return self._make(device, "ones", shape, dtype=_default_to_float(dtype))

    def arange(self, start: float, stop: float, step: float, dtype: Any | None, device: Device) -> Tensor:
        return self._range(device, "arange", dtype, start, stop, step)

    def linspace(
        self, start: float, stop: float, num: int, dtype: Any | None, device: Device, endpoint: bool
    ) -> Tensor:
        return self._range(device, "linspace", dtype, start, stop, num, endpoint=endpoint)

    def eye(self, n_rows: int, n_cols: int, k: int, dtype: Any | None, device: Device) -> Tensor:
        return self._make(device, "eye", n_rows, n_cols, k, dtype=_default_to_float(dtype))

    def _make(self, device: Device, function: str, *args: Any, **options: Any) -> Tensor:
        with current_device(device):
            return getattr(library(device), function)(*args, **options)

    def _range(self, device: Device, function: str, dtype: Any | None, *args: Any, **options: Any) -> Tensor:
        """Return a range on a device. CuPy has no ranges of bool, complex or bfloat16, so NumPy makes those."""
        plain = all(isinstance(each, (int, float)) for each in args) and (dtype is None or dtype.kind in "iuf")
        array: Tensor = self._make(device if plain else CPU, function, *args, dtype=dtype, **options)
        return array if plain or device is CPU else to_gpu(array, device)


def _default_to_float(dtype: Any | None) -> Any:
    """Return a dtype, or the default of both libraries, because some CuPy functions do not accept None."""
    return np.dtype(float) if dtype is None else dtype
