"""The error for a full device, which is both devshim's error and PyTorch's, for real and simulated GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from devshim.errors import (
    DeviceMismatchError,
    DeviceNotFoundError,
    JoinedError,
    OutOfMemoryError,
    SimulationError,
)

if TYPE_CHECKING:
    from devshim.devices.device import Device

__all__ = [
    "EventsOfTwoDevicesError",
    "ForkedProcessError",
    "FullDeviceError",
    "HiddenDevicesError",
    "MissingDeviceError",
    "RemovedDeviceError",
]

_ADVICE = (
    "If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid "
    "fragmentation.  See documentation for Memory Management  "
    "(https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)"
)
"""The end of the text for a full device, which PyTorch prints in all cases."""
_Accelerator: Any = getattr(torch, "AcceleratorError", RuntimeError)  # exists from 2.8 on


class FullDeviceError(JoinedError, OutOfMemoryError, torch.OutOfMemoryError):  # type: ignore[misc]  # PyTorch is Any
    """Error for a full device; ``except torch.OutOfMemoryError`` catches it too."""

    @classmethod
    def _real_text(cls, device: Device, nbytes: int | None, free: int | None) -> str | None:
        from devshim_backends._torch.simulation.internals import module

        if nbytes is None:
            return None
        free_now, total = module.mem_get_info(device.index)
        used, limit = module.memory_allocated(device.index), module.memory_fraction_limit(device.index)
        if free is None or limit is not None:  # the limit of the program leaves the card's memory free
            free = free_now
        allowed = "" if limit is None else f"{_format(limit)} allowed; "
        return (
            f"CUDA out of memory. Tried to allocate {_format(nbytes)}. GPU {device.index} has a total capacity of "
            f"{_format(total)} of which {_format(free)} is free. Including non-PyTorch memory, this process has "
            f"{_format(used)} memory in use. {allowed}Of the allocated memory {_format(used)} is allocated by PyTorch, "
            f"and 0 bytes is reserved by PyTorch but unallocated. {_ADVICE}"
        )


def _format(nbytes: int) -> str:
    """Return bytes as PyTorch's allocator prints them."""
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if nbytes > 1 << power:
            return f"{nbytes / (1 << power):.2f} {unit}"
    return f"{nbytes} bytes"


class RemovedDeviceError(JoinedError, SimulationError, _Accelerator):  # type: ignore[misc]
    """Error for a tensor whose simulated GPU was removed; on a real one, its memory was freed."""

    _real_text = "CUDA error: an illegal memory access was encountered"


class MissingDeviceError(JoinedError, SimulationError, _Accelerator):  # type: ignore[misc]
    """Error for a simulated GPU that is named and does not exist."""


class EventsOfTwoDevicesError(JoinedError, DeviceMismatchError, _Accelerator):  # type: ignore[misc]
    """Error for the time between events of two simulated GPUs; with native names, the text begins like CUDA's."""


class HiddenDevicesError(JoinedError, DeviceNotFoundError, RuntimeError):
    """Error for the use of CUDA while all simulated GPUs are hidden; with native names only."""


class ForkedProcessError(JoinedError, SimulationError, _Accelerator):  # type: ignore[misc]
    """Error for a forked process that uses CUDA although its parent has used it; with native names only."""
