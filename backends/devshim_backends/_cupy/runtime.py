"""CuPy at run time: whether CUDA has started, the memory of the GPUs, and CuPy's memory pool."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, ClassVar, Literal

import cupy
from cupy.cuda import runtime

from devshim.contract.backend import Backend
from devshim.devices import host, nvml
from devshim.devices.device import CPU
from devshim.devices.info import MemoryInfo
from devshim.errors.out_of_memory import reports_full_device

from .devices import gpu_count, is_used
from .failures import FullDeviceError
from .scopes import current_device

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devshim.devices.device import Device
    from devshim.errors import OutOfMemoryError

_LIMIT_VARIABLE = "CUPY_GPU_MEMORY_LIMIT"


class CupyRuntime(Backend):
    """The mixin for memory and the start of CUDA."""

    policies_after_start: ClassVar[tuple[str, ...]] = ("grow", "fraction")
    out_of_memory_class: ClassVar[type[OutOfMemoryError] | None] = FullDeviceError

    def started(self) -> bool:
        return nvml.cuda_started()

    def set_visible(self, indices: Sequence[int] | None) -> None:
        if runtime.is_hip and indices is not None:
            os.environ.pop("ROCR_VISIBLE_DEVICES", None)  # it would take precedence over HIP_VISIBLE_DEVICES

    def memory(self, device: Device) -> MemoryInfo:
        if device is CPU:
            return host.memory()
        if not is_used(device.index):  # asking CUDA would create a context only to answer
            known = nvml.card_at(device.index)
            if known is not None:
                return MemoryInfo(total=known.total_memory, used=0, free=known.free_memory)
        with current_device(device):
            free, total = runtime.memGetInfo()
            pool = cupy.get_default_memory_pool()
            used, spare = pool.used_bytes(), pool.free_bytes()
        # The free memory in CuPy's pool is available, and so is the driver's free memory.
        return MemoryInfo(total=total, used=used, free=free + spare)

    def empty_cache(self, device: Device) -> None:
        if device is not CPU and is_used(device.index):
            with current_device(device):
                cupy.get_default_memory_pool().free_all_blocks()

    def memory_policy(self, policy: Literal["grow"] | float) -> None:
        if policy == "grow":
            return  # CuPy does this anyway
        os.environ[_LIMIT_VARIABLE] = f"{float(policy):%}"  # CuPy reads it for each GPU when it first allocates there
        for index in filter(is_used, range(gpu_count())):
            with cupy.cuda.Device(index):
                cupy.get_default_memory_pool().set_limit(fraction=float(policy))

    def is_out_of_memory(self, error: BaseException) -> bool:
        if isinstance(error, MemoryError):  # CuPy's own error and NumPy's are subclasses
            return True
        return isinstance(error, RuntimeError) and reports_full_device(error)
