"""The device, the properties and copies of arrays: CuPy's arrays on GPUs, NumPy's in host memory."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from devshim.contract.backend import Backend, Tensor
from devshim.devices.device import CPU, Device
from devshim.devices.dtypes import dtype_name, is_numpy_dtype, numpy_dtype
from devshim.errors import messages
from devshim_backends._cupy.transfers.internals.peer_copies import copy_to_gpu, to_gpu, to_host

from .devices import gpu_device, is_used
from .scopes import current_device


class CupyTensors(Backend):
    """The mixin for placing, copying and reading tensors."""

    def is_tensor(self, cls: type) -> bool:
        return issubclass(cls, (cupy.ndarray, np.ndarray))

    def is_model(self, cls: type) -> bool:
        return False

    def is_tracer(self, x: Tensor) -> bool:
        return False

    def device_of(self, x: Tensor) -> Device:
        return CPU if isinstance(x, (np.ndarray, np.generic)) else gpu_device(x.data.device_id)

    def copy_to(self, x: Tensor, device: Device, non_blocking: bool = False) -> Tensor:
        source = self.device_of(x)
        if source is not CPU:
            return to_host(x, source) if device is CPU else copy_to_gpu(x, source, device)
        if device is not CPU:
            return to_gpu(x, device, non_blocking)
        return np.array(x, copy=True, subok=True)

    def to_numpy(self, x: Tensor, copy: bool) -> np.ndarray:
        source = self.device_of(x)
        if source is not CPU:
            if not copy:
                raise messages.copy_needed(source, CPU)
            return to_host(x, source)
        if isinstance(x, np.ma.MaskedArray):
            raise messages.masked()
        return np.array(x, copy=True) if copy else np.asarray(x)

    def from_numpy(self, array: np.ndarray, device: Device, copy: bool) -> Tensor:
        if device is CPU:
            return np.array(array, copy=True) if copy else array
        if not copy:
            raise messages.copy_needed(CPU, device)
        return to_gpu(array, device)

    def dtype_name(self, x: Tensor) -> str:
        return dtype_name(x.dtype)

    def shape(self, x: Tensor) -> tuple[int, ...]:
        return tuple(x.shape)

    def is_writable(self, x: Tensor) -> bool:
        return bool(x.flags.writeable) if isinstance(x, np.ndarray) else True

    def nbytes(self, x: Tensor) -> int:
        return int(x.nbytes)

    def synchronize(self, device: Device) -> None:
        if device is not CPU and is_used(device.index):  # a GPU that was never used has nothing to finish
            cupy.cuda.Device(device.index).synchronize()

    def dtype(self, name: str) -> Any:
        return numpy_dtype(name)

    def is_dtype(self, value: object) -> bool:
        return is_numpy_dtype(value)

    def cast(self, x: Tensor, dtype: Any) -> Tensor:
        with current_device(self.device_of(x)):
            return x.astype(dtype)
