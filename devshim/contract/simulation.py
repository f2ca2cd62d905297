"""The contract for simulated GPUs: what `ds.simulate` needs of an adapter, and what it may ask afterwards.

An adapter implements these methods in ``simulation/``. A backend without simulation inherits everything here: it shows
no simulated GPUs, and `simulate` raises `UnsupportedError` with the gap that the backend declared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

from devshim.contract import capabilities
from devshim.devices.device import CPU

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from devshim.devices.device import Device
    from devshim.errors import DevshimError
    from devshim.simulation.faults import Fault
    from devshim.simulation.memory import SimulatedDevices

__all__ = ["SimulationBackend"]


class SimulationBackend:
    """The mixin of `Backend` for simulated GPUs."""

    simulated: int = 0
    """The number of simulated GPUs that this backend shows; 0 without simulation."""
    most_simulated_gpus: int = 64
    """The largest number of simulated GPUs that the framework can show, or that is tested with it."""
    simulated_like: str = "cuda"
    """The platform that the simulated GPUs imitate: ``"cuda"``, ``"mps"`` or ``"xpu"``."""
    dtypes_lacking: frozenset[str] = frozenset()
    """The names of the dtypes that the GPUs cannot hold; set when the backend is loaded, and by `ds.simulate`."""
    native_names: bool = False
    """True if the framework's own names for GPUs mean the simulated GPUs; set by `ds.simulate`."""
    native_names_requested: bool = False
    """True if native names are on or about to be; set by `ds.simulate` before it calls `simulate`."""
    operators_follow_tensors: bool = True
    """True if operators compute on the device of their tensors if no scope is open; False: on a default device."""
    simulation_refused: DevshimError | None = None
    """The error of a request for simulated GPUs that the framework could not meet; otherwise None."""
    simulated_or_removed: int = 0
    """The number of simulated GPUs that tensors may be on; exceeds `simulated` while some are on removed GPUs."""
    simulated_devices: SimulatedDevices | None = (
        None  # the simulated GPUs' memory and faults; None before the first simulation
    )

    @property
    def is_simulating(self) -> bool:
        """True while the simulation has to be installed: also for removed GPUs, and for hidden ones' native names."""
        return bool(self.simulated_or_removed or self.native_names_requested)

    def simulate(self, gpus: int, memory: int | None, faults: Sequence[Fault] = ()) -> None:
        """Show this many simulated GPUs of this many bytes each from now on (0: none), with these faults.

        Sets `simulated`, and begins `simulated_devices`, in which every allocation on a simulated GPU is recorded.
        With no GPUs and `native_names_requested`, all simulated GPUs are hidden: native names are switched on for none.

        Raises:
            SimulationError: It is too late, or real GPUs are visible (`devshim.errors.messages`).
        """
        raise capabilities.unsupported_error(self, "simulate")  # type: ignore[arg-type]

    def device_for_dtype(self, dtype: str, device: Device) -> Device:
        """Return a device, or the host if the device is a GPU that cannot hold a dtype, such as Apple's float64."""
        return CPU if device.kind == "gpu" and dtype in self.dtypes_lacking else device

    def set_native_names(self, named: bool) -> None:
        """Let the framework's own names for GPUs mean the simulated GPUs from now on, or stop that.

        Called while `simulated` GPUs are shown, or all are hidden, which is a build for CUDA on a machine that shows no
        GPU; never called twice with the same value. With False, every attribute of the
        framework is again what it was; `devshim.simulation.patching.Patches` restores them.
        """
        raise capabilities.unsupported_error(self, "native_names")  # type: ignore[arg-type]

    def refuse_removed_devices(self, check: Callable[[Device | None], None]) -> AbstractContextManager[object]:
        """Return a context in which operators and reads call ``check(device)``, which raises for removed GPUs."""
        return nullcontext()

    def forget_removed_devices(self) -> None:
        """Handle a lower `simulated_or_removed`, which has changed because the last tensor on a removed GPU has died.

        `simulated` is as before, and so are memory limits, peaks and faults of the GPUs that are shown. An adapter
        drops cached devices, and uninstalls what it had installed for removed GPUs.
        """
