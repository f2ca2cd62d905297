"""Simulated GPUs as a Paddle plug-in, which must be there before Paddle starts, and how many of them are visible.

Requirements that this module meets:

* Paddle fixes its devices when it starts.  The plug-in provides as many as devshim can ever simulate, and shows the
  first of them: once the plug-in is loaded, `simulate` can be called again with any number.
* A program that imported Paddle without the plug-in cannot have it (`plugin`); the error says which line to move.
* Paddle's default device remains the host's CPU, as under simulation in every framework.  (With a plug-in, Paddle would
  choose the plug-in's first device, just as a CUDA build chooses ``gpu:0``.)
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import paddle

from devshim.contract.backend import Backend
from devshim.errors import messages
from devshim_backends._paddle import devices, import_hooks
from devshim_backends._paddle.devices import core
from devshim_backends._paddle.simulation import operators, plugin, visibility
from devshim_backends._paddle.simulation.memory import SIMULATED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devshim.errors import SimulationError
    from devshim.simulation.memory import Fault

_MOVE = "move ds.simulate(...) above `import paddle`, or set DEVSHIM_SIMULATE_GPUS in the environment"


if plugin.library() is not None:
    visibility.show(0)  # until `simulate` sets a number; Paddle itself has made the first GPU its default device


class PaddleSimulation(Backend):
    """The mixin for simulation."""

    def simulate(self, gpus: int, memory: int | None, faults: Sequence[Fault] = ()) -> None:
        if gpus and plugin.library() is None:
            self._load()
        if plugin.library() is None:
            return
        SIMULATED.begin(gpus, memory, faults)
        self.simulated_devices = SIMULATED
        self.simulated = gpus
        visibility.show(gpus)
        if self.simulated_or_removed:  # the wrappers also refuse tensors on GPUs that were removed
            operators.put_in_place()
        else:
            operators.put_back()

    def _load(self) -> None:
        """Load the plug-in into a Paddle that is already imported, if that is still possible."""
        refused = plugin.refusal()
        if refused is not None:
            raise refused
        if core.is_compiled_with_cuda() or core.is_compiled_with_xpu():
            raise self._too_late("this build is for real cards, and takes no plug-ins", "pip install paddlepaddle")
        if not import_hooks.by_adapter():
            raise self._too_late("it was imported before devshim was asked to simulate", _MOVE)
        if core.host_memory_stat_peak_value("Allocated", 0):
            raise self._too_late("it has made tensors already, and takes no new devices any more", _MOVE)
        devices.only_host = False
        plugin.attach(Path(paddle.__file__).parent)
        paddle.set_flags({name: int(value) for name, value in plugin.FLAGS.items() if name.endswith("_kernel")})

    def _too_late(self, why: str, move: str) -> SimulationError:
        return messages.simulated_too_late(self, why, move)
