"""CuPy has no simulated GPUs (gap ``simulate``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from devshim.contract import capabilities
from devshim.contract.backend import Backend

if TYPE_CHECKING:
    from devshim.simulation.memory import Fault


class CupySimulation(Backend):
    """The mixin for simulation, which refuses to simulate GPUs."""

    def simulate(self, gpus: int, memory: int | None, faults: Sequence[Fault] = ()) -> None:
        if gpus:
            raise capabilities.unsupported_error(self, "simulate")
