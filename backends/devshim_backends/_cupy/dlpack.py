"""DLPack for CuPy: sharing arrays with other frameworks, in the order of CUDA streams.

Requirements of this module:

* A producer makes its consumer's stream wait for its own. CuPy does this on the streams of the current GPU, so the
  array's own GPU is made current during the call.
* Read-only memory is refused, because all CuPy arrays can be written (14.2).
* NumPy shares host memory. NumPy cannot share these without a copy: bfloat16, a byte order other than the
  machine's, read-only arrays, and negative strides, on which `torch.from_dlpack` crashes
  (pytorch/pytorch#188023).
"""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from devshim.contract.backend import Tensor
from devshim.devices.device import CPU, Device
from devshim.errors import ConversionError, messages
from devshim.transfers import dlpack
from devshim_backends._cupy.devices import gpu_device
from devshim_backends._cupy.scopes import current_device
from devshim_backends._cupy.tensors import CupyTensors


class CupyDlpack(CupyTensors):
    """The mixin for DLPack."""

    alignment = 1
    """The alignment on the host, where NumPy arrays know whether they are aligned; for GPUs see `_check_gpu_memory`."""

    def to_dlpack(self, x: Tensor) -> Any:
        source = self.device_of(x)
        if source is not CPU:
            return _GpuExporter(x, source)
        if isinstance(x, np.ma.MaskedArray):
            raise messages.masked()
        if any(stride < 0 for stride in x.strides):
            msg = "an array with negative strides cannot be shared"
            raise ConversionError(msg, "copy it first")
        if not x.dtype.isnative or x.dtype.kind not in "biufc":
            msg = f"NumPy's DLPack does not support dtype {x.dtype}"
            raise ConversionError(msg, "convert the values first")
        if not x.flags.writeable:
            msg = "a read-only array cannot be shared"
            raise ConversionError(msg, "copy it first")
        return x

    def from_dlpack(self, source: Any) -> Tensor:
        try:
            kind, index = source.__dlpack_device__()
            if int(kind) in dlpack.HOST:
                return _require_writable(np.from_dlpack(dlpack.ValidatingExporter(source, _check_memory)))
            with current_device(gpu_device(int(index or 0))):
                return cupy.from_dlpack(dlpack.ValidatingExporter(source, _check_gpu_memory))
        except Exception as error:  # producers, CuPy and NumPy raise BufferError, RuntimeError, TypeError, ...
            raise messages.not_accepted(self, source, error) from error


class _GpuExporter:
    """An array whose own GPU is current while it is exported."""

    def __init__(self, x: Tensor, device: Device) -> None:
        self._x = x
        self._device = device

    def __dlpack_device__(self) -> Any:
        return self._x.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        with current_device(self._device):
            return self._x.__dlpack__(**options)


def _check_memory(offered: dlpack.TensorInfo) -> None:
    """Refuse memory that its owner declares read-only, and dtypes that CuPy has no arrays of."""
    if offered.read_only:
        msg = "it is read-only, and CuPy has no read-only arrays"
        raise BufferError(msg)
    if offered.dtype not in dlpack.FORMS:
        msg = f"CuPy has no arrays of dtype {offered.dtype}"
        raise BufferError(msg)


def _check_gpu_memory(offered: dlpack.TensorInfo) -> None:
    """Refuse what `_check_memory` refuses, and unaligned memory: a kernel would fail and break the CUDA context."""
    _check_memory(offered)
    if offered.address % offered.itemsize:
        msg = f"its address is not a multiple of {offered.itemsize}, the bytes of an element"
        raise BufferError(msg)


def _require_writable(array: np.ndarray) -> np.ndarray:
    """Return a writable array; refuse one that NumPy made read-only because its capsule is silent about it."""
    if not array.flags.writeable:
        msg = "its producer does not say whether it is writable"
        raise BufferError(msg)
    return array
