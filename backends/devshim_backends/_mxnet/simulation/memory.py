"""The memory that MXNet's arrays use on simulated GPUs, counted chunk by chunk.

Requirements that this module meets:

* Every array counts, whether MXNet's operators, Gluon, ``attach_grad`` or devshim made it.  All of them go through
  ``NDArrayBase.__init__``, which is wrapped while GPUs are simulated; a weak reference to the array's handle records
  its end.
* The function that records that an array is gone is written in C, so that a Ctrl-C during it is not lost.  Work that
  Ctrl-C interrupted is completed by the next call.
* Views share a chunk, which counts once.
* A chunk that nothing in Python refers to any more is given back at once: later work in the queue can reuse a card's
  memory even while the work that used it is still pending.  But a *recorded* chunk counts until the tape releases it,
  and a gradient's buffer as long as its array.  Only MXNet knows when that is, so these chunks are checked again (see
  `settle`) when the numbers are read, and before a GPU counts as full.
* The engine works asynchronously, and releases its references shortly after the work is done, which Python cannot
  observe: `settle` therefore waits briefly, once for each chunk that stays.
* Arrays from before the simulation, or from when the GPU was the host, count from `begin` on.

Not counted: memory that never becomes a Python array, such as an operator's temporary memory and the memory that a
hybridized block or a kvstore keeps inside; and sparse arrays, which get their memory after they were made.
"""

from __future__ import annotations

import gc
import time
from _thread import allocate_lock
from collections import deque
from typing import TYPE_CHECKING, Any
from weakref import ref

import mxnet as mx

from devshim_backends._mxnet.native import is_recording, where
from devshim_backends._mxnet.simulation import storage
from devshim_backends._mxnet.simulation.storage import Kept

if TYPE_CHECKING:
    from collections.abc import Iterable

    from devshim.simulation.memory import SimulatedDevice, SimulatedDevices

_CPU = 1
_PATIENCE = (0.0, 0.001, 0.002, 0.004, 0.008, 0.016)
"""Seconds to wait for the engine to release what it has finished with."""
_ROOM = 64
"""The number of lingering chunks from which on they are checked again without need."""


class _Counted:
    """One chunk on a simulated GPU."""

    __slots__ = ("__weakref__", "address", "arrays", "card", "kept", "settled")

    def __init__(self, address: int, card: SimulatedDevice) -> None:
        self.address, self.card = address, card
        card.hold(self, storage.nbytes(address))
        self.arrays: set[int] = set()
        """The addresses of the references (`_Held`) to the Python arrays in the chunk."""
        self.kept: Kept | None = None
        """Set once MXNet may keep the chunk longer than Python's arrays do."""
        self.settled = -1
        """The number of its holders when the chunk was last found to stay."""


class _Held(ref):  # type: ignore[type-arg]  # generic for the type checker only
    """A weak reference to the handle of an array on a simulated GPU: a handle lives as long as its array."""

    __slots__ = ("entry", "key")

    entry: _Counted | None
    key: int


_lock = allocate_lock()
_cards: SimulatedDevices | None = None
_labelled = 0
_of: dict[int, _Held] = {}
"""By the handle of each Python array on a simulated GPU; another array may have the handle by now: see `_entry_of`."""
_counted: dict[int, _Counted] = {}
"""By the address of the chunk."""
_lingering: dict[int, _Counted] = {}
"""Chunks that only MXNet itself still refers to."""
_dropped: deque[_Held] = deque()
"""References to arrays that have died: the garbage collector, which takes no lock, adds them; the next call drains."""
_look_again = _ROOM


def begin(cards: SimulatedDevices, shown: int, labelled: int) -> None:
    """Count memory on these simulated GPUs, of existing and of future arrays; arrays on other GPUs no longer count.

    Args:
        cards: All simulated GPUs.
        shown: How many of them are visible.
        labelled: How many there are including those that were removed and still contain arrays, which keep counting.
    """
    global _cards, _labelled
    with _lock:
        _sweep()
        for handle, held in list(_of.items()):
            if held.entry is None or held.entry.card.device.index >= labelled:
                del _of[handle]
        for entry in [entry for entry in _counted.values() if entry.card.device.index >= labelled]:
            _release(entry)
        counted = 0 if _cards is None else _labelled
        _cards, _labelled = cards, labelled
    if labelled > counted:  # otherwise every existing array was counted when it was made
        for x in gc.get_objects():
            if isinstance(x, mx.nd.NDArray) and getattr(x, "handle", None) and where(x) >> 32 <= shown:
                made(x)
                # reading the gradient creates an array, and counts it
                if _entry_of(x.handle.value) is not None and (gradient := x.grad) is not None:
                    may_outlive([gradient.handle])


def _entry_of(handle: int) -> _Counted | None:
    """Return the entry that is counted for the array of a handle, and not for an earlier array with that handle."""
    held = _of.get(handle)
    return None if held is None or held() is None else held.entry


def made(x: Any) -> None:
    """Count an array that has just been made, if it is on a simulated GPU.

    Raises:
        OutOfMemoryError: It does not fit there.
        DeviceFailedError: The GPU has vanished.
        SimulationError: The GPU was removed.
    """
    handle = x.handle.value
    place = where(x)
    index = (place >> 32) - 1
    if place & 0xFFFFFFFF != _CPU or not 0 <= index < _labelled or _entry_of(handle) is not None:
        return
    cards = _cards
    assert cards is not None
    address, card = storage.chunk(handle), cards[index]
    card.require_shown()  # also for a view, which takes no memory
    if address not in _counted:
        _make_room(card, storage.nbytes(address))
    with _lock:
        _drain()
        held = _Held(x.handle, _dropped.append)
        held.key, held.entry = handle, None
        _of[handle] = held
        entry = _counted.get(address) or _Counted(address, card)
        # No call between these: a Ctrl-C before them leaves nothing counted, and after them the array's end is enough.
        held.entry = entry
        _counted[address] = entry
        entry.arrays.add(id(held))
        _lingering.pop(address, None)
        if is_recording():
            _keep(entry, x.handle)


def require_shown(handles: Iterable[int]) -> None:
    """Raise `SimulationError` if one of these arrays is on a simulated GPU that was removed."""
    for handle in handles:
        entry = _entry_of(handle)
        if entry is not None:
            entry.card.require_shown()


def may_outlive(handles: Iterable[Any]) -> None:
    """Record that MXNet itself may keep using the chunks of these arrays when Python's arrays are gone."""
    for handle in handles:
        entry = _entry_of(handle.value)
        if entry is not None and entry.kept is None:
            with _lock:
                _keep(entry, handle)


def settle() -> None:
    """Give back the chunks that MXNet has released, once all work on them is done."""
    with _lock:
        _sweep()
        unsure = [entry for entry in _lingering.values() if _holders(entry) != entry.settled]
        waiting = [entry.kept for entry in unsure]  # keeps them alive while the lock is not held
    for kept in waiting:
        assert kept is not None
        kept.wait()
    for pause in _PATIENCE if unsure else ():
        time.sleep(pause)
        with _lock:
            _sweep()
            if not any(entry.address in _lingering for entry in unsure):
                return
    with _lock:
        for entry in unsure:
            if entry.kept is not None:
                entry.settled = _holders(entry)


def _make_room(card: SimulatedDevice, nbytes: int) -> None:
    """Give back chunks that MXNet has released before a simulated GPU counts as full, or reaches a new peak."""
    lingering = len(_lingering)
    if not lingering and not _dropped:
        return
    info = card.info()
    if info.free is not None and nbytes > info.free:
        settle()
    elif info.used + nbytes > info.peak or lingering > _look_again:  # type: ignore[operator]  # never None
        with _lock:
            _sweep()


# ---------------------------------------------------------------------- with the lock held
def _keep(entry: _Counted, handle: Any) -> None:
    if entry.kept is None:
        entry.kept = Kept(handle)


def _holders(entry: _Counted) -> int:
    assert entry.kept is not None
    return storage.sharers(entry.kept.handle.value or 0)


def _drain() -> None:
    """Process the arrays that have died; after a Ctrl-C one may be processed twice, which has no further effect."""
    while _dropped:
        _leave(_dropped[0])
        _dropped.popleft()


def _leave(held: _Held) -> None:
    key: int | None = getattr(held, "key", None)  # None: Ctrl-C came before it was set
    entry: _Counted | None = getattr(held, "entry", None)
    if key is not None and _of.get(key) is held:
        del _of[key]
    if entry is None:
        return
    entry.arrays.discard(id(held))
    if not entry.arrays and _counted.get(entry.address) is entry:
        if entry.kept is None:
            _release(entry)
        else:
            _lingering[entry.address] = entry


def _sweep() -> None:
    """Give back the chunks that have no holder any more."""
    global _look_again
    _drain()
    for entry in reversed(list(_lingering.values())):  # the newest may refer to chunks that they were made from
        if entry.kept is not None and entry.kept.is_alone():
            _release(entry)
    _look_again = 2 * len(_lingering) + _ROOM


def _release(entry: _Counted) -> None:
    entry.kept = None
    _counted.pop(entry.address, None)  # the simulated GPU counts the chunk as long as the entry is referred to
    _lingering.pop(entry.address, None)
