"""Simulated GPUs: on, off, and what they are; the device itself is the package `simulated`, loaded when asked for.

Requirements this module answers:

* Nothing is loaded, registered or patched in PyTorch before the first card is asked for.
* While cards are shown ``gpu:i`` is ``torch.device("sim", i)``, in both directions, and ``cuda:i`` again afterwards.
* A compiled function has the devices of its time in it, so what is compiled is forgotten at every switch.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from devshim.contract.backend import Backend
from devshim_backends._torch.devices import name_cards

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devshim.simulation.memory import Fault


class TorchSimulation(Backend):
    """The room of simulation."""

    def simulate(self, gpus: int, memory: int | None, faults: Sequence[Fault] = ()) -> None:
        if not gpus and self.cards is None:
            return
        from devshim_backends._torch.simulation import memory as counted
        from devshim_backends._torch.simulation import switch

        switch.show(gpus, memory)
        counted.CARDS.begin(gpus, memory, faults)
        self.cards = counted.CARDS
        self.simulated = gpus
        name_cards("sim" if gpus else "cuda")
        compiler: Any = sys.modules.get("torch._dynamo")
        if compiler is not None:
            compiler.reset()
