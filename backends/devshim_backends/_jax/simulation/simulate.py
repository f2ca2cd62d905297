"""Simulated GPUs for JAX: JAX's own CPU devices. ``cpu:0`` is the host, ``cpu:1`` to ``cpu:N`` are the GPUs.

Each has real data in its own memory. JAX refuses to mix arrays of different devices, and runs compiled code on the
device of its arguments. `memory` counts the bytes, and `hooks` lets JAX's operators run out of memory; the error is a
JAX error and a devshim error. The number of devices can change while no array is on them.
"""

from __future__ import annotations

import gc
import os
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import jax
from jax._src import distributed, xla_bridge

from devshim.contract.backend import Backend
from devshim.errors import JoinedError, OutOfMemoryError, SimulationError, messages
from devshim_backends._jax import devices, real_gpus
from devshim_backends._jax.buffers import JaxError
from devshim_backends._jax.dlpack import JaxDlpack
from devshim_backends._jax.internals import clients
from devshim_backends._jax.simulation import hooks
from devshim_backends._jax.simulation import memory as memory_module
from devshim_backends._jax.simulation.memory import JaxSimulatedDevices

_FLAG = "--xla_force_host_platform_device_count"
"""The number of GPUs that devshim provides immediately if JAX cannot change the number later."""

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from devshim.devices.device import Device
    from devshim.simulation.memory import Fault


class FullDeviceError(JoinedError, OutOfMemoryError, JaxError):  # type: ignore[misc,valid-type]  # JAX is Any to the type checker
    """The error for a full simulated GPU, which is also JAX's."""

    @classmethod
    def _real_text(cls, device: Device, nbytes: int | None, free: int | None) -> str | None:
        return f"RESOURCE_EXHAUSTED: Out of memory while trying to allocate {nbytes} bytes."


class RemovedDeviceError(JoinedError, SimulationError, JaxError):  # type: ignore[misc,valid-type]  # JAX is Any to the type checker
    """The error for an array on a simulated GPU that was removed, which is also JAX's."""

    _real_text = "INTERNAL: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered"


SIMULATED = JaxSimulatedDevices(FullDeviceError)
SIMULATED.removed_error = RemovedDeviceError


class JaxSimulation(JaxDlpack, Backend):
    """The mixin for simulation."""

    out_of_memory_class: ClassVar[type[OutOfMemoryError] | None] = FullDeviceError

    def simulate(self, gpus: int, memory: int | None, faults: Sequence[Fault] = ()) -> None:
        real = 0 if self.simulated else self.count("gpu")
        if gpus and real:
            raise messages.real_gpus_present(self, real)
        if gpus:
            self._ensure_cpu_devices(gpus + 1)
        self.simulated = gpus
        SIMULATED.begin(gpus, memory, faults)
        self.simulated_devices = SIMULATED
        self.forget_removed_devices()

    def forget_removed_devices(self) -> None:
        devices.DEVICES.clear()  # a JAX device that was the host may be a simulated GPU now, or the other way round
        self._count_on_devices()
        if self.native_names:
            self._names().refresh(self)

    def set_native_names(self, named: bool) -> None:
        if named:
            self._names().install(self)
        else:
            self._names().uninstall()

    def cpu_client(self) -> Any:
        """Return the CPU client of JAX. Starts JAX."""
        return _client()

    def _names(self) -> Any:
        from devshim_backends._jax.simulation.native_names import switch

        return switch

    def _count_on_devices(self) -> None:
        """Count the arrays on JAX's current devices for the simulated GPUs."""
        labelled = self.simulated_or_removed  # arrays on devices that were taken away are still counted, and refused
        natives = clients.cpu_devices()[1 : labelled + 1] if labelled else ()
        by_native = {native: SIMULATED[i] for i, native in enumerate(natives)}
        if labelled:
            hooks.install(SIMULATED, by_native)
        else:
            hooks.uninstall()
        memory_module.start_counting(by_native)

    def _ensure_cpu_devices(self, wanted: int) -> None:
        """Ensure that JAX has at least this many CPU devices, including the host."""
        if not clients.started():
            self._start_cpu_devices(wanted)
        elif len(clients.cpu_devices()) < wanted:
            self._restart(wanted)
        have = len(clients.cpu_devices())
        if have < wanted:
            msg = f"it has started with {have} CPU device{'' if have == 1 else 's'}"
            raise self._too_late(msg)

    def _start_cpu_devices(self, wanted: int) -> None:
        """Start JAX with at least this many CPU devices."""
        with _starting_only_the_cpu(self.native_names_requested):
            jax.config.update("jax_num_cpu_devices", max(wanted, _requested_cpu_devices()))
            _client()

    def _restart(self, wanted: int) -> None:
        """Start JAX's devices again, which is only safe while no array is on the old ones."""
        if distributed.global_state.client is not None:
            msg = "it has started its devices together with the other ranks of the job"
            raise self._too_late(msg)
        self._stop_devices()
        self._start_devices(wanted)

    def _stop_devices(self) -> None:
        """Let JAX drop its devices, unless arrays are on them."""
        why = self._why_devices_stay()
        if why:
            raise self._too_late(why)
        from jax.extend.backend import clear_backends

        if self.native_names:
            self._names().uninstall()
        clear_backends()

    def _why_devices_stay(self) -> str:
        """Return why JAX cannot start its devices again, after they have started; empty if it can."""
        gc.collect()
        held = sum(x.committed for x in clients.live_arrays(_client()))
        return f"it has started its devices, and {held} array{' is' if held == 1 else 's are'} on them" if held else ""

    def _start_devices(self, wanted: int) -> None:
        """Start JAX with new devices after `_stop_devices`."""
        self._start_cpu_devices(wanted)
        if self.native_names:
            self._names().install(self)

    def _too_late(self, why: str) -> Exception:
        return messages.simulated_too_late(
            self, why, "call ds.simulate before the first JAX array, or set DEVSHIM_SIMULATE_GPUS in the environment"
        )


def _client() -> Any:
    kept = clients.kept_client()
    return xla_bridge.get_backend("cpu") if kept is None else kept


@contextmanager
def _starting_only_the_cpu(native_names: bool) -> Iterator[None]:
    """Let JAX start only its CPU, if it would fail to start it, or would report an error for the GPUs.

    With native names, a program may exclude the CPU, as with ``JAX_PLATFORMS=cuda``. The GPUs of the machine are
    hidden, because they and simulated GPUs exclude each other, and JAX's CUDA plug-in logs that as an error.
    """
    chosen = jax.config.jax_platforms
    excluded = native_names and chosen and "cpu" not in chosen.split(",")
    if not excluded and (chosen or real_gpus.gpu_plugin() is None or real_gpus.platform() != "cuda"):
        yield
        return
    jax.config.update("jax_platforms", "cpu")
    try:
        yield
    finally:
        jax.config.update("jax_platforms", chosen)


def _requested_cpu_devices() -> int:
    """Return the number of CPU devices that the user requested."""
    found = re.search(_FLAG + r"=([0-9]+)", os.environ.get("XLA_FLAGS", ""))
    by_flag = int(found.group(1)) if found else 1
    return max(by_flag, int(jax.config.jax_num_cpu_devices))
