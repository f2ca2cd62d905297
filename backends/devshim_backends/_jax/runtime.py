"""JAX at run time: its start, and the memory of its devices.

When JAX starts its devices, it reads its memory settings and takes 75% of each GPU. So the settings are environment
variables that must be set before the start.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

import jax

from devshim.contract import capabilities
from devshim.contract.backend import Backend
from devshim.devices import host
from devshim.devices.device import CPU
from devshim.devices.info import MemoryInfo
from devshim.errors.out_of_memory import reports_full_device
from devshim_backends._jax import real_gpus
from devshim_backends._jax.devices import memory_stats
from devshim_backends._jax.internals import clients
from devshim_backends._jax.scopes import JaxScopes
from devshim_backends._jax.simulation import memory as memory_module

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from devshim.devices.device import Device

_PREALLOCATE = "XLA_PYTHON_CLIENT_PREALLOCATE"
_FRACTION = "XLA_PYTHON_CLIENT_MEM_FRACTION"
_NEW_FRACTION = "XLA_CLIENT_MEM_FRACTION"
"""The newer name of the fraction. JAX refuses to start if both are set."""


class JaxRuntime(JaxScopes, Backend):
    """The mixin for memory and the start of JAX."""

    def started(self) -> bool:
        return clients.started()

    def set_visible(self, indices: Sequence[int] | None) -> None:
        if real_gpus.is_rocm():  # CUDA_VISIBLE_DEVICES is for NVIDIA GPUs only
            jax.config.update("jax_rocm_visible_devices", "all" if indices is None else ",".join(map(str, indices)))

    def memory(self, device: Device) -> MemoryInfo:
        if device is CPU:
            return host.memory()
        native = self.to_native(device)
        if self.simulated and self.simulated_devices is not None:
            memory_module.update_counts()
            return self.simulated_devices[device.index].info()
        stats = memory_stats(native)
        card = real_gpus.nvml_card(device.index) if device.kind == "gpu" else None
        limit = stats.get("bytes_limit")
        return MemoryInfo(
            total=limit if card is None or card.total_memory is None else card.total_memory,
            used=stats.get("bytes_in_use"),
            free=_free_bytes(stats, None if card is None else card.free_memory),
            peak=stats.get("peak_bytes_in_use"),
        )

    def empty_cache(self, device: Device) -> None:
        if device is not CPU and not self.simulated:  # a simulated GPU has no cache
            raise capabilities.unsupported_error(self, "empty_cache")

    def memory_policy(self, policy: Literal["grow"] | float) -> None:
        if policy == "grow":
            os.environ[_PREALLOCATE] = "false"
            return
        name = _NEW_FRACTION if _NEW_FRACTION in os.environ else _FRACTION
        os.environ[name] = str(policy)

    def is_out_of_memory(self, error: BaseException) -> bool:
        # XLA's error class has moved between modules, but is always a RuntimeError with a status code in its text.
        return isinstance(error, (MemoryError, RuntimeError)) and reports_full_device(error)


def _free_bytes(stats: Mapping[str, int], driver_free: int | None) -> int | None:
    """Return the bytes that JAX can still allocate, up to its limit: free bytes of its pool and of the driver."""
    limit, used = stats.get("bytes_limit"), stats.get("bytes_in_use")
    if limit is None or used is None:
        return None
    pool_free = max(0, stats.get("pool_bytes", used) - used)
    return limit - used if driver_free is None else min(limit - used, driver_free + pool_free)
