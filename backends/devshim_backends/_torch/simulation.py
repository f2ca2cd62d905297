"""Simulated GPUs on PyTorch are planned: until then the declared gap answers, and 0 switches off what is not on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devshim import _refusals
from devshim.backend import Backend

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devshim._cards import Fault


class TorchSimulation(Backend):
    """The room of simulation."""

    def simulate(self, gpus: int, memory: int | None, faults: Sequence[Fault] = ()) -> None:
        if gpus:
            raise _refusals.unsupported(self, "simulate")
