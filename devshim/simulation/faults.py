"""The faults of simulated cards that a test can ask for; `devshim.simulation.memory` has them come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devshim.devices.device import Device, as_int
from devshim.devices.parsing import device as as_device
from devshim.errors import ArgumentError
from devshim.errors.formatting import show

if TYPE_CHECKING:
    from typing import Literal

    from devshim.devices.parsing import DeviceLike

__all__ = ["EVENTS", "Fault"]

EVENTS = ("allocation", "copy", "vanish")


class Fault:
    """Something that goes wrong on a simulated card, for tests of what comes after: ``ds.simulate(faults=...)``.

    Args:
        device: The simulated card.
        what: ``"allocation"``: an allocation on it finds no room (`OutOfMemoryError`). ``"copy"``: a copy that devshim
            makes to it or from it fails (`DeviceFailedError`). ``"vanish"``: from an allocation or a copy on,
            everything on it fails (`DeviceFailedError`), until GPUs are simulated anew.
        at: At which such event, counted from 1 for each framework and card since `simulate`; for ``"vanish"``
            allocations and copies count alike.
        times: How many events in a row fail; a card that has vanished stays so.

    Raises:
        ArgumentError: ``device`` is no GPU, or the other arguments make no sense.
    """

    __slots__ = ("at", "device", "times", "what")
    device: Device
    what: str
    at: int
    times: int

    def __init__(
        self, device: DeviceLike, what: Literal["allocation", "copy", "vanish"], at: int = 1, times: int = 1
    ) -> None:
        self.device = as_device(device)
        if self.device.kind != "gpu":
            raise ArgumentError(f"a fault is for a simulated GPU, not for {self.device}", "pass 'gpu:0'")
        if what not in EVENTS:
            raise ArgumentError(f"a fault is {show(what)}, and it must be one of {EVENTS}", f"pass {EVENTS[0]!r}")
        self.what = what
        self.at, self.times = _positive("at", at), _positive("times", times)

    def __repr__(self) -> str:
        more = "" if self.times == 1 else f", times={self.times}"
        return f"Fault({str(self.device)!r}, {self.what!r}, at={self.at}{more})"


Fault.__module__ = "devshim"


def _positive(name: str, value: object) -> int:
    try:
        number = as_int(value)
    except TypeError:
        number = 0
    if number < 1:
        raise ArgumentError(f"{name} is {show(value)}, and it must be an int of at least 1", f"pass {name}=1")
    return number
