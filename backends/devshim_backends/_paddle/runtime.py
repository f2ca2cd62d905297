"""PaddlePaddle's runtime: whether it has started, which cards are visible to it, and their memory."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import paddle

from devshim.contract.backend import Backend
from devshim.devices import host
from devshim.devices.device import CPU
from devshim.devices.info import MemoryInfo
from devshim.errors import messages
from devshim.errors.out_of_memory import reports_full_device
from devshim_backends._paddle.devices import core, is_custom, is_xpu

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from devshim.devices.device import Device

_CUDA_START_ERROR = re.compile(r"CUDA error\((3|34|35|46|100|101|800|803|804|999)\)[^\n]*")
"""Paddle's error text when CUDA does not start, with the numbers of ``cudaError``."""


_PATIENCE = 5.0
"""Seconds to wait for each worker of a loader."""


class PaddleRuntime(Backend):
    """The mixin for the runtime."""

    policies_after_start: ClassVar[tuple[str, ...]] = ("grow",)

    def started(self) -> bool:
        # Reserved memory shows it: Paddle looks for cards when it is imported, but uses one much later.
        kinds = [kind for kind in self.kinds() if self.count(kind)]
        return any(
            core.device_memory_stat_peak_value("Reserved", index) for kind in kinds for index in range(self.count(kind))
        )

    def close_loader(self, batches: Iterator[Any]) -> None:
        """End the workers and the thread of a ``paddle.io.DataLoader``; its own ``__del__`` never does, as they use it.

        Measured with PaddlePaddle 3.3.1, whose private names these are. Persistent workers belong to the loader. A
        loader without workers has a thread, and no such attribute.
        """
        end = getattr(batches, "_try_shutdown_all", None)
        if end is None or not type(batches).__module__.startswith("paddle."):
            return
        persistent = getattr(batches, "_persistent_workers", None)
        if persistent is None:
            end()
        elif not persistent:
            end(_PATIENCE)

    def set_visible(self, indices: Sequence[int] | None) -> None:
        if core.is_compiled_with_cuda():  # it read CUDA_VISIBLE_DEVICES during its import
            raise messages.already_started(self, "ds.set_visible_devices()")

    def memory(self, device: Device) -> MemoryInfo:
        if device is CPU:
            return host.memory()
        if self.simulated_devices is not None and device.kind == "gpu":
            return self.simulated_devices[device.index].info()
        # Paddle counts by index only, for all kinds of card together.
        used = int(core.device_memory_stat_current_value("Allocated", device.index))
        peak = int(core.device_memory_stat_peak_value("Allocated", device.index))
        total = None if is_custom(device) else self.describe(device).total_memory
        return MemoryInfo(total=total, used=used, free=None, peak=peak)

    def empty_cache(self, device: Device) -> None:
        if device is CPU:
            return
        if is_xpu(device):
            paddle.device.xpu.empty_cache()
        elif not is_custom(device):
            paddle.device.cuda.empty_cache()
        elif hasattr(core, "device_empty_cache"):  # from 3.1 on
            core.device_empty_cache()

    def memory_policy(self, policy: Literal["grow"] | float) -> None:
        if policy == "grow":
            return  # Paddle's default: FLAGS_allocator_strategy is auto_growth
        totals = [
            paddle.device.cuda.get_device_properties(index).total_memory
            for index in range(paddle.device.cuda.device_count())
        ]
        if totals:  # Paddle has one limit for all cards: the smallest decides
            paddle.set_flags({"FLAGS_gpu_memory_limit_mb": max(1, int(min(totals) * policy) >> 20)})

    def is_out_of_memory(self, error: BaseException) -> bool:
        if isinstance(error, MemoryError):
            return True
        # Paddle has no class for this: a full card raises a MemoryError, RuntimeError, OSError or SystemError.
        is_paddle_error = isinstance(error, (RuntimeError, OSError, SystemError))
        return is_paddle_error and reports_full_device(error)

    def why_unable_to_start(self, error: BaseException) -> str | None:
        found = (
            _CUDA_START_ERROR.search(str(error)) if isinstance(error, (OSError, RuntimeError, SystemError)) else None
        )
        return None if found is None else found[0]
