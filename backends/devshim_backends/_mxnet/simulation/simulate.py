"""Simulated GPUs: MXNet's ``cpu(1)`` to ``cpu(N)`` stand for ``gpu:0`` to ``gpu:N-1``.

Requirements this module answers:

* They hold real data in memory of their own, copies between them are copies, and Gluon refuses inputs from another one
  by itself.  They can be switched on and off at any time, because MXNet starts nothing.
* What a real card refuses is refused (`watching`), memory is counted (`counting`), and a card runs out: the errors are
  MXNet's own and devshim's in one.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, ClassVar

import mxnet as mx

from devshim.errors import OutOfMemoryError, joined, messages
from devshim.simulation.memory import Cards
from devshim_backends._mxnet.devices import HAS_CUDA
from devshim_backends._mxnet.models import parameters
from devshim_backends._mxnet.simulation import hooks, storage
from devshim_backends._mxnet.simulation import memory as memory_module
from devshim_backends._mxnet.tensors import MxnetTensors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devshim.simulation.memory import Fault


@joined
class FullCardError(OutOfMemoryError, mx.MXNetError):  # type: ignore[misc]  # MXNet is Any to the type checker
    """What a simulated card that is full answers in MXNet's place."""


class MxnetCards(Cards):
    """The simulated cards of MXNet."""

    def settle(self) -> None:
        memory_module.settle()


CARDS = MxnetCards(FullCardError)
_LOCK = Lock()


class MxnetSimulation(MxnetTensors):
    """The room of simulation."""

    full_error: ClassVar[type[OutOfMemoryError] | None] = FullCardError

    def simulate(self, gpus: int, memory: int | None, faults: Sequence[Fault] = ()) -> None:
        if gpus and HAS_CUDA and not self.simulated and (real := self.count("gpu")):
            raise messages.real_cards(self, real)
        with _LOCK:
            if gpus:
                storage.check()
                self.cards = CARDS
            CARDS.begin(gpus, None)  # what is there already counts, and is not refused
            self.simulated = gpus
            self._devices = {}
            if self.labelled:
                hooks.watch(self)
                parameters.install(self)
            memory_module.begin(CARDS, gpus, self.labelled)
            if not self.labelled:
                hooks.unwatch()
                parameters.uninstall()
            CARDS.begin(gpus, memory, faults)
