"""NumPy's devices: the host, and simulated GPUs if the user asked for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from devshim.devices import host
from devshim.devices.device import CPU, Device
from devshim_backends._numpy.simulation.simulate import NumpySimulation

if TYPE_CHECKING:
    from devshim.devices.info import DeviceInfo


class NumpyDevices(NumpySimulation):
    """The mixin for counting, naming and describing devices."""

    def kinds(self) -> Sequence[str]:
        return ("gpu",) if self.simulated else ()

    def count(self, kind: str) -> int:
        return {"cpu": 1, "gpu": self.simulated}.get(kind, 0)

    def why_unavailable(self, kind: str) -> str:
        return "NumPy computes only on the CPU"

    def to_native(self, device: Device) -> str:
        return str(device)

    def from_native(self, native: object) -> Device | None:
        return None  # NumPy's device is the text "cpu", which devshim's parser knows

    def describe(self, device: Device) -> DeviceInfo:
        return host.describe(self.name) if device is CPU else self.describe_simulated_gpu(device)
