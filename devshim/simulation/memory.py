"""Simulated cards: their memory, counted by the byte, and when the faults come that a test asked for.

Requirements this module answers:

* One count and one text for every framework: an adapter says which object holds how many bytes of which card
  (`Card.hold`), and everything else is the same everywhere. The bytes count for as long as that object lives.
* Exact to the rounding: `ROUND` bytes, as CUDA's allocators of PyTorch and TensorFlow round.
* Safe in threads, and inside the garbage collector, which may end a tensor's life in the middle of anything: what is
  gone is only noted there, and settled by the next who looks.
* Safe under Ctrl-C. A finalizer in Python can be interrupted before its first line, and Python drops the interrupt
  with it; so what notes that an object is gone is a function in C (``deque.append``), here and in every adapter. An
  interrupt in the middle of an update leaves `Card._split` set, and the next who looks adds up again.
* An operator of the framework's own that finds a card full raises the error devshim's own calls raise, which is the
  framework's own, too, for those who catch that: an adapter passes a class that is both.

Imported by adapters that simulate, and by nobody else before a fault is asked for.
"""

from __future__ import annotations

from _thread import RLock
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any
from weakref import ref

from devshim.devices.device import CPU, Device
from devshim.devices.info import MemoryInfo
from devshim.errors import OutOfMemoryError, messages
from devshim.simulation.faults import EVENTS, Fault

if TYPE_CHECKING:
    from devshim.contract.backend import Backend

__all__ = ["EVENTS", "ROUND", "Card", "Cards", "Fault"]

ROUND = 512
"""Bytes: every allocation on a simulated card takes a multiple of this."""


class _Held(ref):  # type: ignore[type-arg]  # generic for the type checker only
    """A weak reference that knows what its object took."""

    __slots__ = ("key", "nbytes")

    key: int
    nbytes: int


_LOCK: Any = RLock()
"""Held around every update of a count.  Python may run a signal's handler or a finalizer in the middle of one, in the
same thread: what that makes is noted, and counted by the next who looks."""
_OWNERS: dict[int, _Held] = {}
"""The last record for the owner at an address; the owner may be gone, and another object there now."""


class Card:
    """One simulated card of one framework.

    Attributes:
        device: Which.
        limit: Its bytes, or None for no limit.
        lost: Whether it has vanished.
        taken: The line that took it away, as ``file:line``; None while it is shown.
    """

    def __init__(self, device: Device, full: type[OutOfMemoryError]) -> None:
        self.device = device
        self.limit: int | None = None
        self.lost: bool = False
        self.taken: str | None = None
        self._full = full
        self._used = 0
        self._peak = 0
        self._held: dict[int, _Held] = {}
        """The counted owners, by the address of the reference; `_used` is their sum."""
        self._gone: deque[_Held] = deque()
        self._late: deque[_Held] = deque()
        """What was made in the middle of an update, by a signal's handler or a finalizer."""
        self._split = False
        """True while an update of the two is incomplete."""
        self._faults: list[Fault] = []
        self._events = {"allocation": 0, "copy": 0}

    def begin(self, limit: int | None, faults: Iterable[Fault] = ()) -> None:
        """Start anew with a limit and faults: what is there stays counted, and is the highest so far."""
        middle = _LOCK._is_owned()
        with _LOCK:
            if not middle:
                self._settle()
            self.limit, self.lost = limit, False
            self._peak = self._used
            self._faults = [fault for fault in faults if fault.device is self.device]
            self._events = dict.fromkeys(self._events, 0)

    def hold(self, owner: Any, nbytes: int, *, there: bool = False) -> None:
        """Count bytes until their owner, which must allow weak references, is gone; once, however often it is said.

        Args:
            owner: What has the memory.
            nbytes: How much; it takes whole roundings.
            there: The memory is on the card already: it is counted, and not refused.

        Raises:
            OutOfMemoryError: It does not fit, or a fault says so; of the class the adapter passed.
            DeviceFailedError: The card has vanished.
            SimulationError: It was taken away.
        """
        known = _OWNERS.get(id(owner))
        if known is not None and known() is owner:
            return
        if not there:
            self.require_shown()
        held = _Held(owner, self._gone.append)
        held.key, held.nbytes = id(owner), -(-nbytes // ROUND) * ROUND
        place = id(held)
        if _LOCK._is_owned():
            self._late.append(held)
            return
        with _LOCK:
            self._settle()
            fails = self._faults and not there and self._happens("allocation")
            if there or (not fails and (self.limit is None or held.nbytes <= self.limit - self._used)):
                self._split = True
                self._held[place] = held  # from here on no call, in which Python could run something else
                _OWNERS[held.key] = held
                self._used += held.nbytes
                if self._used > self._peak:
                    self._peak = self._used
                self._split = False
                return
            free = self._free()
        if self.lost:
            raise messages.device_failed(self.device, f"an allocation of {nbytes:,} bytes")
        raise messages.full(self.device, nbytes, free, self._full)

    def answer(self, what: str) -> None:
        """Raise `DeviceFailedError` where the card has vanished, `SimulationError` where it was taken away."""
        self.require_shown()
        if self.lost:
            raise messages.device_failed(self.device, what)

    def require_shown(self) -> None:
        """Raise `SimulationError` where the card was taken away."""
        if self.taken is not None:
            from devshim.simulation.removed_gpus import taken_away

            raise taken_away(self.device, self.taken)

    def copying(self, what: str) -> None:
        """Count a copy to or from the card; raises `DeviceFailedError` where a fault says so."""
        with _LOCK:
            fails = self._faults and self._happens("copy")
        if fails or self.lost:
            raise messages.device_failed(self.device, what)

    def reset_peak(self) -> None:
        """Make what is used now the highest so far."""
        middle = _LOCK._is_owned()
        with _LOCK:
            if not middle:
                self._settle()
            self._peak = self._used

    def info(self) -> MemoryInfo:
        """Return what the card shows."""
        middle = _LOCK._is_owned()
        with _LOCK:
            if not middle:
                self._settle()
            total, used, free, peak = self.limit, self._used, self._free(), self._peak
        return MemoryInfo(total=total, used=used, free=free, peak=peak)

    def _free(self) -> int | None:
        """What can still be asked for: whole roundings alone."""
        return None if self.limit is None else max(self.limit - self._used, 0) // ROUND * ROUND

    def _settle(self) -> None:
        """Take note of what came and went, with the lock held; what is done twice, after an interrupt, is done once."""
        if self._split:
            self._used = sum(held.nbytes for held in self._held.values())
            self._split = False
        self._count_late()
        gone = self._gone
        while gone:
            held = gone[0]
            self._split = True
            if self._held.pop(id(held), None) is not None:
                self._used -= held.nbytes
            key = getattr(held, "key", None)  # None: an interrupt came before it had one
            if key is not None and _OWNERS.get(key) is held:
                del _OWNERS[key]
            gone.popleft()
            self._split = False

    def _count_late(self) -> None:
        """Count what was made in the middle of an update, if it is still there."""
        late = self._late
        while late:
            held = late[0]
            place = id(held)
            if held() is not None and place not in self._held:
                self._split = True
                self._held[place] = held
                _OWNERS[held.key] = held
                self._used += held.nbytes
                if self._used > self._peak:
                    self._peak = self._used
                self._split = False
            late.popleft()

    def _happens(self, event: str) -> bool:
        """Count an event, with the lock held; whether it fails."""
        self._events[event] += 1
        every = sum(self._events.values())
        for fault in self._faults:
            if fault.what == "vanish":
                self.lost = self.lost or every >= fault.at
            elif fault.what == event and fault.at <= self._events[event] < fault.at + fault.times:
                return True
        return self.lost


class Cards:
    """The simulated cards of one framework, by their index; there may be more than are shown now.

    Args:
        full: The class of the error that says a card is full; a framework's own and `OutOfMemoryError` in one.
    """

    def __init__(self, full: type[OutOfMemoryError] = OutOfMemoryError) -> None:
        self._full = full
        self._cards: list[Card] = []

    def begin(self, gpus: int, memory: int | None, faults: Iterable[Fault] = ()) -> None:
        """Start anew with so many cards; those that were there before, and what is on them, stay."""
        while len(self._cards) < gpus:
            self._cards.append(self.new(Device("gpu", len(self._cards))))
        for card in self._cards:
            card.begin(memory, faults)

    def new(self, device: Device) -> Card:
        """Make a card; an adapter that counts in its own way has a class of its own."""
        return Card(device, self._full)

    def used_beyond(self, gpus: int) -> int:
        """Return how many cards there must be to have the last one on which something is; 0 where it is below."""
        self.settle()
        return max((card.device.index + 1 for card in self._cards[gpus:] if card.info().used), default=0)

    def settle(self) -> None:
        """Take note of what is gone, where that is not noted as it goes."""

    def __getitem__(self, index: int) -> Card:
        return self._cards[index]

    def __iter__(self) -> Iterator[Card]:
        return iter(self._cards)


def watch(backend: Backend, source: Device | None, target: Device, what: str) -> None:
    """What `transfers.engine` calls while faults are asked for: before a copy, or (no source) before anything else."""
    cards = backend.cards
    if cards is None or not backend.simulated:
        return
    for device in {source, target} - {CPU, None}:
        assert device is not None
        if source is None:
            cards[device.index].answer(what)
        else:
            cards[device.index].copying(what)
