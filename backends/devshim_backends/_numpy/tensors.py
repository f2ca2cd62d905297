"""The device, the properties and copies of NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from devshim.contract.backend import Backend, Tensor
from devshim.devices.device import CPU, Device
from devshim.devices.dtypes import dtype_name, is_numpy_dtype, numpy_dtype
from devshim.errors import ConversionError, messages
from devshim.errors.formatting import type_name, with_article
from devshim.registry import missing_devices
from devshim_backends._numpy.simulation.simulate import SimulatedArray, label_array


class NumpyTensors(Backend):
    """The mixin for tensors. Plain arrays are on the host, a `SimulatedArray` is on its simulated GPU."""

    def is_tensor(self, cls: type) -> bool:
        return issubclass(cls, np.ndarray)

    def is_model(self, cls: type) -> bool:
        return False

    def is_tracer(self, x: Tensor) -> bool:
        return False

    def device_of(self, x: Tensor) -> Device:
        return x._gpu if type(x) is SimulatedArray else CPU

    def copy_to(self, x: Tensor, device: Device, non_blocking: bool = False) -> Tensor:
        if device is not CPU and self.name == "numpy" and type(x) is not SimulatedArray:
            missing_devices.refuse_plain_array(self, device)
        return self.to_device(np.array(_host_view(x), copy=True, subok=True), device)

    def to_numpy(self, x: Tensor, copy: bool) -> np.ndarray:
        if is_masked(x):
            raise messages.masked()
        view = _host_view(x)
        return np.array(view, copy=True) if copy else np.asarray(view)

    def from_numpy(self, array: np.ndarray, device: Device, copy: bool) -> Tensor:
        return self.to_device(np.array(array, copy=True), device) if copy else array

    def dtype_name(self, x: Tensor) -> str:
        return dtype_name(x.dtype)

    def shape(self, x: Tensor) -> tuple[int, ...]:
        return tuple(x.shape)

    def is_writable(self, x: Tensor) -> bool:
        return bool(x.flags.writeable)

    def nbytes(self, x: Tensor) -> int:
        return int(x.nbytes)

    def synchronize(self, device: Device) -> None:
        return None

    def dtype(self, name: str) -> Any:
        return numpy_dtype(name)

    def is_dtype(self, value: object) -> bool:
        return is_numpy_dtype(value)

    def cast(self, x: Tensor, dtype: Any) -> Tensor:
        return x.astype(dtype)

    def to_device(self, array: np.ndarray, device: Device) -> np.ndarray:
        """Return the array for the host, or labelled with a simulated GPU; refuse what a GPU cannot store."""
        if device is CPU:
            return array
        if type(array) not in _PLAIN_TYPES:
            msg = f"{with_article(type_name(array))} cannot be on {device}: a simulated GPU would lose the class"
            raise ConversionError(msg, "pass np.asarray(x), or keep it on the CPU")
        if array.dtype.kind in "SUMmO" or issubclass(array.dtype.type, np.void):  # ml_dtypes have the kind V, too
            msg = f"an array of dtype {array.dtype} cannot be on {device}: a GPU stores only plain numbers"
            raise ConversionError(msg, "convert the values first, or keep it on the CPU")
        return label_array(array, device)


_PLAIN_TYPES = frozenset({np.ndarray, SimulatedArray, np.memmap})
"""Classes whose arrays differ from a plain array only in where their memory is."""


def _host_view(x: np.ndarray) -> np.ndarray:
    """Return a view without the device's label; other subclasses (masked arrays, memory maps) are returned as is."""
    return x.view(np.ndarray) if type(x) is SimulatedArray else x


def is_masked(x: np.ndarray) -> bool:
    """Return True if an array is masked, without importing ``numpy.ma`` (20 ms) if its type already says no."""
    return type(x) not in (np.ndarray, SimulatedArray) and isinstance(x, np.ma.MaskedArray)
