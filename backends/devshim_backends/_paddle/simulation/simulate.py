"""Simulated GPUs: a plug-in of Paddle's own, which is there from before Paddle starts, and what is shown of it.

Requirements this module answers:

* Paddle fixes what devices there are when it starts.  The plug-in brings as many as devshim can be asked for, and shows
  the first of them: `simulate` may come again, with any number, as soon as the plug-in is loaded.
* A program that imported Paddle without it cannot have it (`plugin`), and is told which line to move.
* Paddle's default device stays what it was, the host's CPU, as under simulation in every framework.  (With a plug-in
  Paddle would take the first card of it, as a build for CUDA takes ``gpu:0``.)
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
from devshim_backends._paddle.simulation.memory import CARDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devshim.errors import SimulationError
    from devshim.simulation.memory import Fault

_MOVE = "move ds.simulate(...) above `import paddle`, or set DEVSHIM_SIMULATE_GPUS in the environment"


if plugin.library() is not None:
    visibility.show(0)  # until `simulate` says how many; Paddle itself has made the first its default device


class PaddleSimulation(Backend):
    """The room of simulation."""

    def simulate(self, gpus: int, memory: int | None, faults: Sequence[Fault] = ()) -> None:
        if gpus and plugin.library() is None:
            self._load()
        if plugin.library() is None:
            return
        CARDS.begin(gpus, memory, faults)
        self.cards = CARDS
        self.simulated = gpus
        visibility.show(gpus)
        if self.labelled:  # tensors on cards that were taken away are refused there
            operators.put_in_place()
        else:
            operators.put_back()

    def _load(self) -> None:
        """Load the plug-in into a Paddle that is imported, where that still works."""
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
