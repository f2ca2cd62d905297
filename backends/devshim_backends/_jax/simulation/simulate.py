"""Simulated GPUs for JAX: JAX's own CPU devices. ``cpu:0`` is the host, ``cpu:1`` to ``cpu:N`` are the GPUs.

If the program asks for several CPU devices, all of them are the host, and the GPUs come after them: `layout`.

Each has real data in its own memory. JAX refuses to mix arrays of different devices, and runs compiled code on the
device of its arguments. `memory` counts the bytes, and `hooks` lets JAX's operators run out of memory; the error is a
JAX error and a devshim error. The number of devices can change while no array is on them.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import jax
from jax._src import distributed, xla_bridge

from devshim.contract.backend import Backend
from devshim.errors import JoinedError, OutOfMemoryError, SimulationError, messages
from devshim_backends._jax import devices, real_gpus
from devshim_backends._jax.buffers import JaxError
from devshim_backends._jax.dlpack import JaxDlpack
from devshim_backends._jax.internals import clients, layout
from devshim_backends._jax.simulation import hooks
from devshim_backends._jax.simulation import memory as memory_module
from devshim_backends._jax.simulation.memory import JaxSimulatedDevices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

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
        is_on = gpus or self.native_names_requested
        if is_on and real:
            raise messages.real_gpus_present(self, real)
        if gpus:
            self._ensure_cpu_devices(gpus)
        self.simulated = gpus
        SIMULATED.begin(gpus, memory, faults)
        self.simulated_devices = SIMULATED
        self.forget_removed_devices()

    def forget_removed_devices(self) -> None:
        devices.DEVICES.clear()  # a JAX device that was the host may be a simulated GPU now, or the other way round
        self.count_on_devices()
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

    def find_plugins(self) -> None:
        """Let JAX find its plug-ins, before native names replace what they register."""
        with _starting_only_the_cpu(True):
            xla_bridge._discover_and_register_pjrt_plugins()

    def start_cpu(self, factory: Callable[[], Any], gpus: Sequence[int]) -> Any:
        """Return a new CPU client of JAX, from JAX's factory, with devices for these of the simulated GPUs."""
        with layout.starting(gpus):
            client = factory()
        layout.meet()
        self.simulated = self.simulated_or_removed = len(gpus)
        return client

    def count_on_devices(self) -> None:
        """Count the arrays on JAX's current devices for the simulated GPUs."""
        labelled = self.simulated_or_removed  # arrays on devices that were taken away are still counted, and refused
        natives = layout.simulated_gpus(labelled) if labelled and not self._starts_later() else []
        by_native = {native: SIMULATED[i] for i, native in enumerate(natives)}
        if labelled:
            hooks.install(SIMULATED, by_native)
        else:
            hooks.uninstall()
        memory_module.start_counting(by_native)

    def _starts_later(self) -> bool:
        """Return True if JAX will start at the program's first question: with native names, what it asks for counts."""
        return self.native_names_requested and not clients.started()

    def _ensure_cpu_devices(self, gpus: int) -> None:
        """Ensure that JAX has, or will have when it starts, devices for this many simulated GPUs."""
        if not clients.started():
            if not self._starts_later():
                self._start_cpu_devices(gpus)
        elif len(layout.simulated_gpus(gpus)) < gpus:
            self._restart(gpus)

    def _start_cpu_devices(self, gpus: int) -> None:
        """Start JAX with devices for this many simulated GPUs."""
        with _starting_only_the_cpu(self.native_names_requested), layout.starting(range(gpus), lasting=True):
            _client()

    def _restart(self, gpus: int) -> None:
        """Start JAX's devices again, which is only safe while no array is on the old ones."""
        if distributed.global_state.client is not None:
            msg = "it has started its devices together with the other ranks of the job"
            raise self._too_late(msg)
        self._stop_devices()
        self._start_devices(gpus)

    def _stop_devices(self) -> None:
        """Let JAX drop its devices, unless arrays are on them."""
        why = self._why_devices_stay()
        if why:
            raise self._too_late(why)
        from jax.extend.backend import clear_backends

        if self.native_names:
            self._names().uninstall()
        clear_backends()
        layout.forget()

    def _why_devices_stay(self) -> str:
        """Return why JAX cannot start its devices again, after they have started; empty if it can."""
        gc.collect()
        held = sum(x.committed for x in clients.live_arrays(_client()))
        return f"it has started its devices, and {held} array{' is' if held == 1 else 's are'} on them" if held else ""

    def _start_devices(self, gpus: int) -> None:
        """Start JAX with new devices after `_stop_devices`; with native names, it starts at the next question."""
        if self.native_names:
            self._names().install(self)
        else:
            self._start_cpu_devices(gpus)

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
