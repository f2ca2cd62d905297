"""Simulated GPUs: not in this release."""

from __future__ import annotations

from devshim import _refusals
from devshim.backend import Backend


class PaddleSimulation(Backend):
    """The room of simulation."""

    def simulate(self, gpus: int, memory: int | None) -> None:
        if gpus:
            raise _refusals.unsupported(self, "simulate")
        self.simulated = 0
