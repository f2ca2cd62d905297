"""The memory of simulated GPUs, counted by the byte, and the faults that a test requests.

Requirements of this module:

* One counter and one error text for every framework. An adapter reports which object uses how many bytes of which
  GPU (`SimulatedDevice.track`); everything else is shared. The bytes count for as long as that object lives.
* Exact up to rounding to `ROUND` bytes, as the CUDA allocators of PyTorch and TensorFlow round.
* Safe in threads, and inside the garbage collector, which may free a tensor in the middle of any operation: there,
  the freed object is only queued, and the next reader updates the counters.
* Safe under Ctrl-C. A finalizer in Python can be interrupted before its first line, and Python drops the interrupt
  with it; so the callback that queues a freed object is a function in C (``deque.append``), here and in every
  adapter. An interrupt in the middle of an update leaves
  `SimulatedDevice._split` set, and the next reader adds up again.
* If a framework's own operator finds a GPU full, it raises the same error as devshim's own calls. That error is also
  an instance of the framework's own error, for code that catches that one: an adapter passes a class that is both.

Only adapters that simulate import this module; nothing else does before a fault is requested.
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

__all__ = ["EVENTS", "ROUND", "Fault", "SimulatedDevice", "SimulatedDevices"]

ROUND = 512
"""Bytes: every allocation on a simulated GPU uses a multiple of this."""


class _Held(ref):  # type: ignore[type-arg]  # generic for the type checker only
    """A weak reference that records how many bytes its object uses."""

    __slots__ = ("key", "nbytes")

    key: int
    nbytes: int


_LOCK: Any = RLock()
"""The lock around every update of a counter. Python may run a signal's handler or a finalizer in the middle of an
update, in the same thread: an allocation made there is queued, and the next reader counts it."""
_OWNERS: dict[int, _Held] = {}
"""The last record for the owner at each address; that owner may be freed, and another object may have its address."""


class SimulatedDevice:
    """One simulated GPU of one framework.

    Attributes:
        device: Its device.
        limit: Its memory in bytes, or None for no limit.
        lost: True if it has vanished.
        taken: The line that removed it, as ``file:line``; None while it is shown.
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
        """Allocations made in the middle of an update, by a signal's handler or a finalizer."""
        self._split = False
        """True while `_held` and `_used` do not agree, because an update is incomplete."""
        self._faults: list[Fault] = []
        self._events = {"allocation": 0, "copy": 0}

    def begin(self, limit: int | None, faults: Iterable[Fault] = ()) -> None:
        """Restart with a limit and faults; what is allocated stays counted, and becomes the new peak."""
        middle = _LOCK._is_owned()
        with _LOCK:
            if not middle:
                self._settle()
            self.limit, self.lost = limit, False
            self._peak = self._used
            self._faults = [fault for fault in faults if fault.device is self.device]
            self._events = dict.fromkeys(self._events, 0)

    def hold(self, owner: Any, nbytes: int, *, there: bool = False) -> None:
        """Count an owner's bytes until the owner is freed; further calls for the same owner count nothing.

        Args:
            owner: The object that owns the memory; it must allow weak references.
            nbytes: How many bytes; they are rounded up to `ROUND`.
            there: True if the memory is already allocated: it is counted, and not refused.

        Raises:
            OutOfMemoryError: It does not fit, or a fault is due; of the class that the adapter passed.
            DeviceFailedError: The GPU has vanished.
            SimulationError: The GPU was removed.
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
                self._held[place] = held  # from here on no function is called, so that Python cannot run other code
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

    def check_alive(self, what: str) -> None:
        """Raise `DeviceFailedError` if the GPU has vanished, and `SimulationError` if it was removed."""
        self.require_shown()
        if self.lost:
            raise messages.device_failed(self.device, what)

    def require_shown(self) -> None:
        """Raise `SimulationError` if the GPU was removed."""
        if self.taken is not None:
            from devshim.simulation.removed_gpus import taken_away

            raise taken_away(self.device, self.taken)

    def copying(self, what: str) -> None:
        """Count a copy to or from the GPU; raise `DeviceFailedError` if a fault is due."""
        with _LOCK:
            fails = self._faults and self._happens("copy")
        if fails or self.lost:
            raise messages.device_failed(self.device, what)

    def reset_peak(self) -> None:
        """Set the peak to what is used now."""
        middle = _LOCK._is_owned()
        with _LOCK:
            if not middle:
                self._settle()
            self._peak = self._used

    def info(self) -> MemoryInfo:
        """Return the GPU's memory: total, used, free and peak."""
        middle = _LOCK._is_owned()
        with _LOCK:
            if not middle:
                self._settle()
            total, used, free, peak = self.limit, self._used, self._free(), self._peak
        return MemoryInfo(total=total, used=used, free=free, peak=peak)

    def _free(self) -> int | None:
        """Return the bytes that can still be allocated: a multiple of `ROUND`."""
        return None if self.limit is None else max(self.limit - self._used, 0) // ROUND * ROUND

    def _settle(self) -> None:
        """Count the queued allocations and frees, with the lock held; a repeat after an interrupt does no harm."""
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
            key = getattr(held, "key", None)  # None: an interrupt came before the key was set
            if key is not None and _OWNERS.get(key) is held:
                del _OWNERS[key]
            gone.popleft()
            self._split = False

    def _count_late(self) -> None:
        """Count the allocations made in the middle of an update, if they still exist."""
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
        """Count an event, with the lock held, and return True if it fails."""
        self._events[event] += 1
        every = sum(self._events.values())
        for fault in self._faults:
            if fault.what == "vanish":
                self.lost = self.lost or every >= fault.at
            elif fault.what == event and fault.at <= self._events[event] < fault.at + fault.times:
                return True
        return self.lost


class SimulatedDevices:
    """The simulated GPUs of one framework, by their index; there may be more than are shown now.

    Args:
        full: The class of the error for a full GPU; it derives from the framework's own error and `OutOfMemoryError`.
    """

    def __init__(self, full: type[OutOfMemoryError] = OutOfMemoryError) -> None:
        self._full = full
        self._cards: list[SimulatedDevice] = []

    def begin(self, gpus: int, memory: int | None, faults: Iterable[Fault] = ()) -> None:
        """Restart with ``gpus`` GPUs; GPUs that existed before stay, and so do the tensors on them."""
        while len(self._cards) < gpus:
            self._cards.append(self.new(Device("gpu", len(self._cards))))
        for card in self._cards:
            card.begin(memory, faults)

    def new(self, device: Device) -> SimulatedDevice:
        """Make a GPU; an adapter that counts in another way overrides this to use its own class."""
        return SimulatedDevice(device, self._full)

    def used_beyond(self, gpus: int) -> int:
        """Return the number of GPUs up to the last one in use, or 0 if none from ``gpus`` on is in use."""
        self.settle()
        return max((card.device.index + 1 for card in self._cards[gpus:] if card.info().used), default=0)

    def settle(self) -> None:
        """Count what was freed, for adapters that do not count each free at once."""

    def __getitem__(self, index: int) -> SimulatedDevice:
        return self._cards[index]

    def __iter__(self) -> Iterator[SimulatedDevice]:
        return iter(self._cards)


def check_faults(backend: Backend, source: Device | None, target: Device, what: str) -> None:
    """Trigger faults; `transfers.engine` calls this before a copy, or (without a source) before other operations."""
    cards = backend.simulated_devices
    if cards is None or not backend.simulated:
        return
    for device in {source, target} - {CPU, None}:
        assert device is not None
        if source is None:
            cards[device.index].check_alive(what)
        else:
            cards[device.index].copying(what)
