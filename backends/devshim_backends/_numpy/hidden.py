"""What of a simulated card's values leaves it unasked: by Python's own conversions and by printing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from devshim._hidden import reads_told
from devshim.backend import Backend
from devshim.device import Device

from .simulation import SimulatedArray


class NumpyHidden(Backend):
    """The room of hidden transfers."""

    def watch(self, report: Callable[[Device, Device, str], None]) -> AbstractContextManager[object]:
        return reads_told(SimulatedArray, lambda x: x._card, report)
