"""Simulated GPUs on PyTorch are planned: until then the declared gap answers, and 0 switches off what is not on."""

from __future__ import annotations

from devshim import _refusals
from devshim.backend import Backend


class TorchSimulation(Backend):
    """The room of simulation."""

    def simulate(self, gpus: int, memory: int | None) -> None:
        if gpus:
            raise _refusals.unsupported(self, "simulate")
