"""Switching simulated GPUs on and off: load the plug-in once, then set how many of its GPUs are visible.

Requirements that this module meets:

* Paddle fixes its devices when it starts. The plug-in provides as many as devshim can ever simulate, and shows the
  first of them: once the plug-in is loaded, `simulate` can be called again with any number.
* A program that imported Paddle without the plug-in cannot have it (`plugin`); the error says which line to move.
* Paddle's default device remains the host's CPU, as under simulation in every framework. (With a plug-in, Paddle would
  choose the plug-in's first device, just as a CUDA build chooses ``gpu:0``.)
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import paddle

from devshim.contract.backend import Backend
from devshim.errors import messages
from devshim_backends._paddle import devices, import_hooks
from devshim_backends._paddle.devices import core
from devshim_backends._paddle.simulation import hooks
from devshim_backends._paddle.simulation.internals import plugin, visibility
from devshim_backends._paddle.simulation.memory import SIMULATED, FullDeviceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devshim.errors import OutOfMemoryError, SimulationError
    from devshim.simulation.memory import Fault

_MOVE_HINT = "move ds.simulate(...) above `import paddle`, or set DEVSHIM_SIMULATE_GPUS in the environment"


if plugin.library() is not None:
    visibility.show(0)  # until `simulate` sets a number; Paddle itself has made the first GPU its default device


class PaddleSimulation(Backend):
    """The mixin for simulation."""

    # Paddle 3.3.1 counts the memory of 16 custom devices: "Only support device id between [0, 15]".
    most_simulated_gpus = 16
    out_of_memory_class: ClassVar[type[OutOfMemoryError] | None] = FullDeviceError

    def simulate(self, gpus: int, memory: int | None, faults: Sequence[Fault] = ()) -> None:
        if (gpus or self.native_names_requested) and plugin.library() is None:
            self._load()
        if plugin.library() is None:
            return
        SIMULATED.begin(gpus, memory, faults)
        self.simulated_devices = SIMULATED
        self.simulated = gpus
        visibility.show(gpus)
        self.forget_removed_devices()

    def forget_removed_devices(self) -> None:
        if self.is_simulating:  # the wrappers also refuse tensors on GPUs that were removed
            hooks.install()
        else:
            hooks.uninstall()

    def set_native_names(self, named: bool) -> None:
        from devshim_backends._paddle.simulation.native_names import switch

        if named:
            switch.install(self)
        else:
            switch.uninstall()

    def _load(self) -> None:
        """Load the plug-in into a Paddle that is already imported, or raise `SimulationError` if it is too late."""
        error = plugin.load_error()
        if error is not None:
            raise error
        if core.is_compiled_with_cuda() or core.is_compiled_with_xpu():
            msg = "this build is for real GPUs and does not accept plug-ins"
            raise self._too_late(msg, "pip install paddlepaddle")
        if not import_hooks.is_imported_by_adapter():
            msg = "it was imported before devshim was asked to simulate"
            raise self._too_late(msg, _MOVE_HINT)
        if core.host_memory_stat_peak_value("Allocated", 0):
            msg = "it has already created tensors, and accepts no new devices after the first one"
            raise self._too_late(msg, _MOVE_HINT)
        devices.only_host = False
        plugin.load_after_import(Path(paddle.__file__).parent)
        paddle.set_flags({name: int(value) for name, value in plugin.FLAGS.items() if name.endswith("_kernel")})

    def _too_late(self, why: str, hint: str) -> SimulationError:
        return messages.simulated_too_late(self, why, hint)
