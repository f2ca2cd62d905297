"""The one flag of everything that watches calls: ledgers and guards, simulated faults, and `explain`.

`ACTIVE` is None while nothing is open in the process, so a call that nothing watches reads one global. A call reads it
once and passes it on, because another thread may close its block at any time.
"""

from __future__ import annotations

from _thread import allocate_lock

TYPE_CHECKING: bool = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from devshim.contract.backend import Backend
    from devshim.devices.device import Device
    from devshim.transfers.observers import Recording

    Record = Callable[[Backend, Device, Device, int | None, int], Recording | None]
    Fault = Callable[[Backend, Device | None, Device, str], None]

    class Explain(Protocol):
        """Receives the calls, and makes native lines of them (`devshim.monitoring.explain.Explainer`)."""

        def call(self, *call: Any, **names: Any) -> None: ...
        def line(self, text: str) -> None: ...
        def keep(self) -> list[str]: ...
        def placement(self, call: str, flat: Any, where: Any) -> None: ...
        def tree(self, call: str, tree: Any, device: Device | None = None, **names: str) -> None: ...
        def file(self, call: str, tree: Any, path: Any, device: Device | None = None) -> None: ...


__all__ = ["Active", "activate", "explainer", "show_call"]


class Active:
    """The observers that are open somewhere in the process; it never changes once it is in `ACTIVE`."""

    __slots__ = ("explain", "fault", "record")

    def __init__(self, explain: Explain | None, fault: Fault | None, record: Record | None) -> None:
        self.explain: Explain | None = explain
        """Receives each call, for `devshim.explain`."""
        self.fault: Fault | None = fault
        """Called before every copy and every allocation while faults are simulated (`devshim.simulation.memory`)."""
        self.record: Record | None = record
        """Returns a context for each copy (`devshim.transfers.observers`); no bytes: for a new tensor."""


ACTIVE: Active | None = None

_LOCK = allocate_lock()


def activate(**observers: Any) -> None:
    """Set or remove (None) single observers, named as in `Active`; the others stay."""
    global ACTIVE
    with _LOCK:
        now = {name: getattr(ACTIVE, name, None) for name in Active.__slots__} | observers
        ACTIVE = Active(**now) if any(now.values()) else None


def explainer() -> Explain | None:
    """Return what receives the calls if an `explain` is open in any thread, else None."""
    active = ACTIVE
    return None if active is None else active.explain


def show_call(*call: Any, **names: str) -> None:
    """Hand a call to an `explain`, if one is open: backend, call, device, args, dtype, and names of its template."""
    active = ACTIVE
    if active is not None and active.explain is not None:
        active.explain.call(*call, **names)
