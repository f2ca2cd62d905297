"""MXNet's runtime: memory, out-of-memory errors, and whether CUDA has started."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar, Literal

import mxnet as mx

from devshim.contract.backend import Backend
from devshim.devices import host, nvml
from devshim.devices.device import CPU
from devshim.devices.info import MemoryInfo
from devshim.errors import UnsupportedError
from devshim.errors.out_of_memory import reports_full_device
from devshim_backends._mxnet.devices import HAS_CUDA, memory_of
from devshim_backends._mxnet.simulation import memory as memory_module

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devshim.devices.device import Device

_NO_START = re.compile(
    "CUDA driver version is insufficient[^\n]*|no CUDA-capable device is detected|system not yet initialized"
    "|all CUDA-capable devices are busy or unavailable|CUDA driver is a stub library"
    "|system has unsupported display driver[^\n]*|forward compatibility was attempted on non supported HW"
)
"""Texts from CUDA that MXNet's errors quote when CUDA does not start."""


class MxnetRuntime(Backend):
    """The mixin for the runtime."""

    policies_after_start: ClassVar[tuple[str, ...]] = ("grow",)

    def started(self) -> bool:
        return HAS_CUDA and nvml.cuda_started()

    def set_visible(self, indices: Sequence[int] | None) -> None:
        return None  # CUDA will read the variable

    def memory(self, device: Device) -> MemoryInfo:
        if device is CPU:
            return host.memory()
        if self.simulated and self.simulated_devices is not None:
            memory_module.release_unused()
            return self.simulated_devices[device.index].info()
        free, total = memory_of(device.index)
        return MemoryInfo(total=total, free=free)  # of all processes: MXNet does not report its own share

    def empty_cache(self, device: Device) -> None:
        if device is not CPU and not self.simulated:
            self.to_native(device).empty_cache()

    def memory_policy(self, policy: Literal["grow"] | float) -> None:
        if policy != "grow":  # MXNet always does this
            msg = "MXNet takes a card's memory as it needs it, and has no setting that limits it to a fraction"
            raise UnsupportedError(msg, "use ds.memory_policy('grow'), or smaller batches (ds.shrink_batch)")

    def is_out_of_memory(self, error: BaseException) -> bool:
        return isinstance(error, (mx.MXNetError, MemoryError)) and reports_full_device(error)

    def why_unable_to_start(self, error: BaseException) -> str | None:
        match = _NO_START.search(str(error)) if isinstance(error, mx.MXNetError) else None
        return None if match is None else f"CUDA does not start ({match[0]})"
