"""The client of the backend ``cuda`` of a program that gets its native names: what JAX and programs ask a client."""

from __future__ import annotations

from typing import Any

import jax

from devshim_backends._jax.internals.clients import live_arrays
from devshim_backends._jax.simulation.native_names import devices

__all__ = ["GpuClient"]


class GpuClient:
    """A client whose devices are the simulated GPUs. All other calls go to the CPU client of JAX.

    The devices are those of the moment: their number can change.
    """

    platform = "gpu"
    _raw_platform = "cuda"
    platform_version = "cuda 13000 (simulated by devshim)"
    runtime_type = "stream_executor"

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def __repr__(self) -> str:
        return f"<simulated GPU client, {self.device_count()} devices>"

    def devices(self) -> list[Any]:
        """Return the simulated GPUs of all processes of the job."""
        return devices.shown_of_all_processes()

    _get_all_devices = devices

    def local_devices(self) -> list[Any]:
        """Return the simulated GPUs of this process."""
        return devices.shown()

    def device_count(self) -> int:
        """Return the number of simulated GPUs of all processes of the job."""
        return len(self.devices())

    def local_device_count(self) -> int:
        """Return the number of simulated GPUs of this process."""
        return len(self.local_devices())

    def device_from_local_hardware_id(self, index: int) -> Any:
        """Return the simulated GPU to which the driver gives a number."""
        found = next((native for native in self.local_devices() if native.local_hardware_id == index), None)
        if found is None:
            msg = f"INVALID_ARGUMENT: No matching device found for local_device_id {index}"
            raise jax.errors.JaxRuntimeError(msg)
        return found

    def live_arrays(self) -> list[Any]:
        """Return the arrays that are on simulated GPUs."""
        return devices.arrays(live_arrays(self._client), gpus=True)
