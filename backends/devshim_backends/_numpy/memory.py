"""The memory of NumPy's simulated cards: counted by the byte, from an array's making until its memory is gone.

Requirements this module answers:

* Exact, whoever makes the array and however it goes: the count hangs on the array that owns the memory.
* Safe in threads, and inside the garbage collector, which may end an array's life in the middle of anything: what
  is given back is only noted there, and settled by the next who looks.
"""

from __future__ import annotations

import weakref
from _thread import allocate_lock
from collections import deque
from typing import TYPE_CHECKING

from devshim.info import MemoryInfo

if TYPE_CHECKING:
    import numpy as np

    from devshim.device import Device

__all__ = ["CARDS", "Memory", "count"]


class Memory:
    """The bytes of one simulated card."""

    def __init__(self) -> None:
        self.limit: int | None = None
        self._used = 0
        self._peak = 0
        self._returned: deque[int] = deque()
        self._lock = allocate_lock()

    def begin(self, limit: int | None) -> None:
        """Start anew with a limit: what is there stays counted, and is the highest so far."""
        with self._lock:
            self.settle()
            self.limit = limit
            self._peak = self._used

    def take(self, nbytes: int) -> None:
        """Count bytes, or raise `MemoryError` where they would not fit."""
        with self._lock:
            self.settle()
            free = None if self.limit is None else self.limit - self._used
            if free is None or nbytes <= free:
                self._used += nbytes
                self._peak = max(self._peak, self._used)
                return
        raise MemoryError(f"simulated card full: {nbytes} bytes asked, {max(free, 0)} free")

    def give(self, nbytes: int) -> None:
        """Note bytes as given back; takes no lock, because the garbage collector may call it inside `take`."""
        self._returned.append(nbytes)

    def info(self) -> MemoryInfo:
        """Return what the card shows."""
        with self._lock:
            self.settle()
            free = None if self.limit is None else max(self.limit - self._used, 0)
            return MemoryInfo(total=self.limit, used=self._used, free=free, peak=self._peak)

    def settle(self) -> None:
        while self._returned:
            self._used -= self._returned.popleft()


CARDS: dict[Device, Memory] = {}
"""The memory of every card there has been since the process began."""

_COUNTED: set[int] = set()
"""The arrays counted now, by their address."""


def count(owner: np.ndarray, card: Device) -> None:
    """Count an array that owns memory on a card until it is gone; once, however often it is asked for."""
    memory, nbytes, key = CARDS[card], owner.nbytes, id(owner)
    if key in _COUNTED:
        return
    memory.take(nbytes)
    _COUNTED.add(key)

    def gone() -> None:
        _COUNTED.discard(key)
        memory.give(nbytes)

    weakref.finalize(owner, gone).atexit = False
