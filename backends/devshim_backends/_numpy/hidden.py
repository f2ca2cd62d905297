"""What of a simulated card's values leaves it unasked: by Python's own conversions and by printing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from devshim._hidden import meetings_told, reads_told
from devshim.backend import Backend
from devshim.device import Device

from .simulation import SimulatedArray

_MORE = (*((name, f"{name}()") for name in ("tobytes", "tofile", "dump", "dumps")), ("__reduce_ex__", "pickle"))


class NumpyHidden(Backend):
    """The room of hidden transfers."""

    @contextmanager
    def watch(self, report: Callable[[Device, Device, str], None]) -> Iterator[None]:
        indexing = meetings_told(SimulatedArray, _card, report, names=("__getitem__", "__setitem__"))  # else it refuses
        with reads_told(SimulatedArray, _card, report, _MORE), indexing:
            yield


def _card(x: SimulatedArray) -> Device:
    return x._card
