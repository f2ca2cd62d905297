"""NumPy at run time: the memory of the host and of simulated GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from devshim.contract import capabilities
from devshim.devices import host
from devshim.devices.device import CPU, Device
from devshim_backends._numpy.simulation.simulate import NumpySimulation

if TYPE_CHECKING:
    from devshim.devices.info import MemoryInfo


class NumpyRuntime(NumpySimulation):
    """The mixin for memory and start-up. NumPy starts no driver, and does not cache or reserve memory."""

    def started(self) -> bool:
        return False

    def set_visible(self, indices: Sequence[int] | None) -> None:
        return None

    def memory(self, device: Device) -> MemoryInfo:
        return host.memory() if device is CPU else self.simulated_memory(device)

    def empty_cache(self, device: Device) -> None:
        return None

    def memory_policy(self, policy: Literal["grow"] | float) -> None:
        raise capabilities.unsupported_error(self, "memory_policy")

    def is_out_of_memory(self, error: BaseException) -> bool:
        return isinstance(error, MemoryError)
