"""The memory of simulated GPUs, counted by the byte, and the faults that a test requests.

A simulated GPU computes in host memory, so an adapter reports each allocation: ``SimulatedDevice.track(owner, nbytes)``
counts ``nbytes`` for as long as the Python object ``owner`` lives, and raises if they do not fit. One `_Allocation`, a
weak reference to the owner that knows the number of bytes, represents them. It goes through these collections of its
GPU:

* `_allocations` holds the allocations that are counted; `_used` is the sum of their bytes.
* `_changes` is a queue of allocations that are not counted yet, each in a tuple, and of allocations whose owners were
  freed, in the order in which that happened. The garbage collector may free an owner in the middle of any operation, so
  its callback only appends to this queue. The callback is a function in C (``deque.append``), because Python may
  interrupt a finalizer in Python before its first line, and then drops the interrupt; adapters follow the same rule.
  An allocation goes through the queue if it cannot be refused, because appending takes less time than an update, or if
  it is made in the middle of an update, by a signal handler or a finalizer that runs in the same thread.

Code that reads or changes the counts takes the lock and applies the queue first (`_apply_changes`): the sums and the
peak are as if each change had been counted immediately. Ctrl-C may interrupt an update between two of its lines: then
`_inconsistent` is still true when the queue is applied next, and `_used` is added up again.

Bytes are rounded up to a multiple of `ROUND`, as in the CUDA allocators of PyTorch and TensorFlow. An operator that
finds a GPU full raises the class of errors that the adapter passes. Only adapters that simulate import this module.
"""

from __future__ import annotations

from _thread import RLock
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn
from weakref import getweakrefcount, getweakrefs, ref

from devshim.devices import platforms
from devshim.devices.device import Device
from devshim.devices.info import MemoryInfo
from devshim.errors import OutOfMemoryError, SimulationError, messages
from devshim.simulation.faults import EVENTS, Fault

__all__ = ["EVENTS", "ROUND", "Fault", "SimulatedDevice", "SimulatedDevices"]

ROUND = 512
"""Bytes: every allocation on a simulated GPU uses a multiple of this."""


class _Allocation(ref):  # type: ignore[type-arg]  # generic for the type checker only
    """A weak reference to the owner of allocated memory, with the number of bytes."""

    __slots__ = ("nbytes",)

    nbytes: int


_MAX_QUEUED = 1024
"""Changes that may be queued before an allocation applies them: this bounds the memory of the queue."""
_LOCK: Any = RLock()
"""The lock around every update of a count; reentrant, because a signal handler or a finalizer may run in the middle of
an update, in the same thread."""


class SimulatedDevice:
    """One simulated GPU of one framework.

    Attributes:
        device: Its device.
        limit: Its memory in bytes, or None for no limit.
        vanished: True if a fault has made it vanish.
        refusals: The number of allocations that it has refused because it was full.
        error_class: The error for a full GPU.
        removed_at: The line that removed it, as ``file:line``; None while it is shown.
        group: All simulated GPUs of the framework.
    """

    def __init__(self, device: Device, error_class: type[OutOfMemoryError]) -> None:
        self.device = device
        self.limit: int | None = None
        self.vanished: bool = False
        self.refusals: int = 0
        self.removed_at: str | None = None
        self.group: SimulatedDevices
        self.error_class = error_class
        self._used, self._peak, self._was_used = 0, 0, False  # `_was_used`: before the last `reset_peak`
        self._allocations: dict[int, _Allocation] = {}
        """The counted allocations, by their addresses; `_used` is the sum of their bytes."""
        self._changes: deque[tuple[_Allocation] | _Allocation] = deque()
        self._inconsistent = False
        """True while `_allocations` and `_used` do not agree, because an update is incomplete."""
        self._faults: list[Fault] = []
        self._events = {"allocation": 0, "copy": 0}

    def begin(self, limit: int | None, faults: Iterable[Fault] = ()) -> None:
        """Restart with a limit and faults; what is allocated stays counted, and becomes the new peak."""
        is_nested = _LOCK._is_owned()
        with _LOCK:
            if not is_nested:
                self._apply_changes()
            self.limit, self.vanished, self.refusals = limit, False, 0
            self._peak, self._was_used = self._used, False
            self._faults = [fault for fault in faults if fault.device is self.device]
            self._events = dict.fromkeys(self._events, 0)

    def track(self, owner: Any, nbytes: int, *, exists: bool = False) -> None:
        """Count an owner's bytes until the owner is freed; further calls for the same owner count nothing.

        Args:
            owner: The object that owns the memory; it must allow weak references.
            nbytes: Their number, rounded up to `ROUND`; negative for bytes that are freed before their owner.
            exists: True if the memory is already allocated: it is counted, and not refused.

        Raises:
            OutOfMemoryError: It does not fit, or a fault is due; of the class that the adapter passed.
            DeviceFailedError: The GPU has vanished.
            SimulationError: The GPU was removed.
        """
        if getweakrefcount(owner) and any(type(each) is _Allocation for each in getweakrefs(owner)):
            return
        if self.removed_at is not None and not exists:
            self.require_shown()
        changes = self._changes
        allocation = _Allocation(owner, changes.append)
        allocation.nbytes = -(-nbytes // ROUND) * ROUND
        is_nested = _LOCK._is_owned()  # in the middle of an update
        if is_nested or (self.limit is None and not self._faults):
            changes.append((allocation,))
            if len(changes) > _MAX_QUEUED and not is_nested:
                with _LOCK:
                    self._apply_changes()
            return
        with _LOCK:
            self._apply_changes()
            fails = self._faults and not exists and self._count_event("allocation")
            if exists or (not fails and (self.limit is None or allocation.nbytes <= self.limit - self._used)):
                self._add(allocation)
                return
            free = self._free()
            self.refusals += not self.vanished
        del allocation  # the error refers to this frame: if the allocation lived on, `owner` would count as tracked
        if self.vanished:
            raise messages.device_failed(self.device, f"an allocation of {nbytes:,} bytes")
        raise messages.full_device(self.device, nbytes, free, self.error_class)

    def check_alive(self, what: str) -> None:
        """Raise `DeviceFailedError` if the GPU has vanished, and `SimulationError` if it was removed."""
        self.require_shown()
        if self.vanished:
            raise messages.device_failed(self.device, what)

    def require_shown(self) -> None:
        """Raise `SimulationError` if the GPU was removed."""
        if self.removed_at is not None:
            from devshim.simulation.removed_gpus import removed_gpu_error

            raise removed_gpu_error(self.device, self.removed_at, self.group.removed_error)

    def is_forgotten(self) -> bool:
        """Look for tensors on a removed GPU; return True if none are left: its native device may be the host by now."""
        self.group.forget_unused()
        return self.removed_at is None

    def count_copy(self, what: str) -> None:
        """Count a copy to or from the GPU; raise `DeviceFailedError` if a fault is due."""
        with _LOCK:
            fails = self._faults and self._count_event("copy")
        if fails or self.vanished:
            raise messages.device_failed(self.device, what)

    def reset_peak(self) -> None:
        """Set the peak to what is used now."""
        is_nested = _LOCK._is_owned()
        with _LOCK:
            if not is_nested:
                self._apply_changes()
            self._was_used, self._peak = self._was_used or bool(self._peak), self._used

    def was_used(self) -> bool:
        """Return True if anything was allocated since `begin`, or before and not freed; asked without the lock."""
        return self._was_used or bool(self._peak or self._changes)

    def info(self) -> MemoryInfo:
        """Return the GPU's memory: total, used, free and peak."""
        is_nested = _LOCK._is_owned()
        with _LOCK:
            if not is_nested:
                self._apply_changes()
            total, used, free, peak = self.limit, self._used, self._free(), self._peak
        return MemoryInfo(total=total, used=used, free=free, peak=peak)

    def _free(self) -> int | None:
        """Return the bytes that can still be allocated: a multiple of `ROUND`."""
        return None if self.limit is None else max(self.limit - self._used, 0) // ROUND * ROUND

    def _apply_changes(self) -> None:
        """Count the queued allocations and frees, with the lock held; a repeat after an interrupt does no harm."""
        if self._inconsistent:
            self._used = sum(allocation.nbytes for allocation in self._allocations.values())
            self._inconsistent = False
        changes = self._changes
        while changes:
            change = changes[0]
            if isinstance(change, _Allocation):
                self._remove(change)
            elif id(change[0]) not in self._allocations:
                self._add(change[0])
            changes.popleft()

    def _add(self, allocation: _Allocation) -> None:
        """Count an allocation, with the lock held; the update calls no function, so no other code can run in it."""
        key = id(allocation)
        self._inconsistent = True
        self._allocations[key] = allocation
        self._used += allocation.nbytes
        if self._used > self._peak:
            self._peak = self._used
        self._inconsistent = False

    def _remove(self, allocation: _Allocation) -> None:
        """Stop counting an allocation whose owner was freed, with the lock held."""
        self._inconsistent = True
        if self._allocations.pop(id(allocation), None) is not None:
            self._used -= allocation.nbytes
        self._inconsistent = False

    def _count_event(self, event: str) -> bool:
        """Count an event, with the lock held, and return True if it fails."""
        self._events[event] += 1
        total = sum(self._events.values())
        for fault in self._faults:
            if fault.what == "vanish":
                self.vanished = self.vanished or total >= fault.at
            elif fault.what == event and fault.at <= self._events[event] < fault.at + fault.times:
                return True
        return self.vanished


class SimulatedDevices:
    """The simulated GPUs of one framework, by their index; there may be more than are shown now.

    Args:
        error_class: The error for a full GPU; it derives from the error of the framework and `OutOfMemoryError`.

    Attributes:
        like: The platform that the GPUs imitate.
        dtypes_lacking: The names of the dtypes that they refuse.
        async_copies: When a copy that does not block arrives: ``"immediate"`` or ``"late"``.
        removed_error: The error for the use of a tensor on a GPU that was removed; an adapter's is also an error of the
            framework.
        forget_unused: Stops refusing removed GPUs on which no tensor is left (`removed_gpus.forget_unused`).
    """

    removed_error: type[SimulationError] = SimulationError

    def __init__(self, error_class: type[OutOfMemoryError] = OutOfMemoryError) -> None:
        self._error_class = error_class
        self._gpus: list[SimulatedDevice] = []
        self.like: str = "cuda"
        self.dtypes_lacking: frozenset[str] = frozenset()
        self.async_copies: str = "immediate"
        self.forget_unused: Callable[[], object] = bool  # replaced while a GPU counts as removed

    def refuse_dtype(self, device: Device, dtype: str) -> NoReturn:
        """Raise the error for a tensor of a dtype in `dtypes_lacking` that is on a GPU, or would be.

        Adapters call this where they count a new tensor.
        """
        raise platforms.missing_dtype_error(device, dtype, self.like)

    def begin(self, gpus: int, memory: int | None, faults: Iterable[Fault] = ()) -> None:
        """Restart with ``gpus`` GPUs; GPUs that existed before stay, and so do the tensors on them."""
        while len(self._gpus) < gpus:
            self._gpus.append(self.new(Device("gpu", len(self._gpus))))
            self._gpus[-1].group = self
        for gpu in self._gpus:
            gpu.begin(memory, faults)

    def new(self, device: Device) -> SimulatedDevice:
        """Make a GPU; an adapter that counts in another way overrides this to use its own class."""
        return SimulatedDevice(device, self._error_class)

    def used_beyond(self, gpus: int, *, unseen: bool = True) -> int:
        """Return the number of GPUs up to the last one in use, or 0 if none after the first ``gpus`` is in use.

        Args:
            gpus: The number of GPUs at the start that are ignored.
            unseen: True to look for tensors that are not counted yet; False if one is being made, which must not count.
        """
        self.count_freed() if unseen else self.drop_freed()
        return max((gpu.device.index + 1 for gpu in self._gpus[gpus:] if gpu.info().used), default=0)

    def count_freed(self) -> None:
        """Count what was freed, for adapters that do not count each free immediately."""

    def drop_freed(self) -> None:
        """Count what was freed, without looking for tensors that are not counted yet."""
        self.count_freed()

    def __getitem__(self, index: int) -> SimulatedDevice:
        return self._gpus[index]

    def __iter__(self) -> Iterator[SimulatedDevice]:
        return iter(self._gpus)
