"""PyTorch's runtime: has it started, which GPUs does it see, and how much memory do they have."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from devshim.contract.backend import Backend
from devshim.devices import host, nvml
from devshim.devices.device import CPU
from devshim.devices.info import MemoryInfo
from devshim.errors.out_of_memory import reports_full_device
from devshim_backends._torch.devices import TYPES, accelerator_count, device_module, has_context
from devshim_backends._torch.failures import FullDeviceError
from devshim_backends._torch.real_gpus import uuid_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from devshim.devices.device import Device
    from devshim.errors import OutOfMemoryError


class TorchRuntime(Backend):
    """Mixin for the runtime."""

    policies_after_start: ClassVar[tuple[str, ...]] = ("grow", "fraction")
    out_of_memory_class: ClassVar[type[OutOfMemoryError] | None] = FullDeviceError

    def started(self) -> bool:
        return bool(torch.cuda.is_initialized() or torch.xpu.is_initialized() or nvml.cuda_started())

    def set_visible(self, indices: Sequence[int] | None) -> None:
        if torch.version.hip is not None and indices is not None:
            for name in ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
                os.environ.pop(name, None)  # ROCm also reads CUDA_VISIBLE_DEVICES, and these would override it

    def close_loader(self, batches: Iterator[Any]) -> None:
        """End the workers and the thread of a ``DataLoader``; those of persistent workers belong to the loader.

        The iterator ends them when it is freed. But the traceback of a worker's error refers to it, and if the garbage
        collector frees both, PyTorch 2.13 waits 5 seconds for each worker: the pipe to it may be closed before.
        """
        if isinstance(batches, _MultiProcessingDataLoaderIter) and not batches._persistent_workers:
            batches._shutdown_workers()

    def memory(self, device: Device) -> MemoryInfo:
        if device is CPU:
            return host.memory()
        if self.simulated_devices is not None and self.simulated and device.kind == "gpu":
            return self.simulated_devices[device.index].info()
        if TYPES.get(device.kind) == "mps":
            return _mps_memory()
        accelerator, index = device_module(device.kind), device.index
        unused = _memory_without_context(index) if accelerator is torch.cuda else None
        if unused is not None:
            return unused
        free, total = accelerator.mem_get_info(index)
        used = accelerator.memory_allocated(index)
        # Memory in PyTorch's cache that no tensor uses is as available as the memory that the driver has left.
        cached = accelerator.memory_reserved(index) - used
        return MemoryInfo(total=total, used=used, free=free + cached, peak=accelerator.max_memory_allocated(index))

    def empty_cache(self, device: Device) -> None:
        if device is not CPU:
            device_module(device.kind).empty_cache()

    def memory_policy(self, policy: Literal["grow"] | float) -> None:
        if policy == "grow":
            return  # PyTorch does this already
        for index in range(accelerator_count("gpu")):
            which = () if TYPES["gpu"] == "mps" else (index,)
            device_module("gpu").set_per_process_memory_fraction(float(policy), *which)

    def is_out_of_memory(self, error: BaseException) -> bool:
        if isinstance(error, torch.OutOfMemoryError):
            return True
        return isinstance(error, RuntimeError) and reports_full_device(error)


def _memory_without_context(index: int) -> MemoryInfo | None:
    """Return NVML's figures for a card that this process has not used; PyTorch's own answer would create a context.

    Returns None if the process already has a context on the card, and if NVML does not know the card, for example a
    MIG slice.
    """
    properties = torch.cuda.get_device_properties(index)  # starts CUDA, so that a driver that cannot start reports it
    if torch.version.hip is not None or has_context(index):
        return None
    known = next((card for card in nvml.cards() if card.uuid == uuid_of(properties)), None)
    if known is None or known.free_memory is None:
        return None
    total = int(properties.total_memory)
    return MemoryInfo(total=total, used=0, free=min(total, known.free_memory), peak=0)


def _mps_memory() -> MemoryInfo:
    total, used = int(torch.mps.recommended_max_memory()), int(torch.mps.current_allocated_memory())
    return MemoryInfo(total=total, used=used, free=max(0, total - int(torch.mps.driver_allocated_memory())))
