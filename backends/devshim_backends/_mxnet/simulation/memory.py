"""What MXNet's arrays take on simulated cards, counted chunk by chunk.

Requirements this module answers:

* Every array counts, whoever made it: MXNet's operators, Gluon, ``attach_grad``, devshim.  All of them pass
  ``NDArrayBase.__init__``, which is watched while GPUs are simulated; a weak reference to its handle notes its end.
* What notes that an array is gone is a function in C, so that Ctrl-C there is not lost.  What Ctrl-C has left half done
  is done by the next.
* Views share a chunk, and count once.
* A chunk that nothing in Python refers to any more is given back at once: a card's memory can be used again by what
  comes next in the order of work, even while the work that used it is still pending.  But what was *recorded* counts
  until the tape lets go of it, and a gradient's buffer as long as its array: MXNet alone knows when, so they are asked
  for again (`settle`) when somebody looks, and before a card is found full.
* The engine works behind Python's back, and drops what it held a moment after the work is done, out of anyone's sight:
  hence a short patience in `settle`, once for what stays.
* Arrays there from before, or from when the card was the host, count from `begin` on.

Not counted: what never becomes an array of Python's, such as what an operator needs meanwhile and what a hybridized
block or a kvstore keeps inside; and sparse arrays, which get their memory after they were made.
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

    from devshim.simulation.memory import Card, Cards

_CPU = 1
_PATIENCE = (0.0, 0.001, 0.002, 0.004, 0.008, 0.016)
"""Seconds to wait for the engine to drop what it has finished with."""
_ROOM = 64
"""How many chunks may linger before they are looked through again without need."""


class _Counted:
    """One chunk on a card."""

    __slots__ = ("__weakref__", "address", "arrays", "card", "kept", "settled")

    def __init__(self, address: int, card: Card) -> None:
        self.address, self.card = address, card
        card.hold(self, storage.nbytes(address))
        self.arrays: set[int] = set()
        """The addresses of the references (`_Held`) to the Python arrays in it."""
        self.kept: Kept | None = None
        """Set once MXNet may keep the chunk beyond Python's arrays."""
        self.settled = -1
        """How many held it when it was last found to stay."""


class _Held(ref):  # type: ignore[type-arg]  # generic for the type checker only
    """A weak reference to the handle of an array on a card: handles live as long as their arrays."""

    __slots__ = ("entry", "key")

    entry: _Counted | None
    key: int


_lock = allocate_lock()
_cards: Cards | None = None
_labelled = 0
_of: dict[int, _Held] = {}
"""By the handle of each of Python's arrays on a card, where another array may be by now: see `_entry_of`."""
_counted: dict[int, _Counted] = {}
"""By the chunk's address."""
_lingering: dict[int, _Counted] = {}
"""Chunks that only MXNet itself still refers to."""
_dropped: deque[_Held] = deque()
"""Of arrays that have died: noted by the garbage collector, which takes no lock, and settled by the next."""
_look_again = _ROOM


def begin(cards: Cards, shown: int, labelled: int) -> None:
    """Count on so many cards: what is there already, and what will be; what is on others counts no more.

    Args:
        cards: All of them.
        shown: How many are shown.
        labelled: How many there are with those that were taken away and hold something: that goes on to count.
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
    if labelled > counted:  # else all there is was counted when it was made
        for x in gc.get_objects():
            if isinstance(x, mx.nd.NDArray) and getattr(x, "handle", None) and where(x) >> 32 <= shown:
                made(x)
                # asking for a gradient makes an array, and counts it
                if _entry_of(x.handle.value) is not None and (gradient := x.grad) is not None:
                    may_outlive([gradient.handle])


def _entry_of(handle: int) -> _Counted | None:
    """Return what is counted for the array of a handle, and not for one that was there before."""
    held = _of.get(handle)
    return None if held is None or held() is None else held.entry


def made(x: Any) -> None:
    """Count an array that has just been made, if it is on a card.

    Raises:
        OutOfMemoryError: It does not fit there.
        DeviceFailedError: The card has vanished.
        SimulationError: It was taken away.
    """
    handle = x.handle.value
    place = where(x)
    index = (place >> 32) - 1
    if place & 0xFFFFFFFF != _CPU or not 0 <= index < _labelled or _entry_of(handle) is not None:
        return
    cards = _cards
    assert cards is not None
    address, card = storage.chunk(handle), cards[index]
    card.require_shown()  # also for a view, which takes nothing
    if address not in _counted:
        _make_room(card, storage.nbytes(address))
    with _lock:
        _drain()
        held = _Held(x.handle, _dropped.append)
        held.key, held.entry = handle, None
        _of[handle] = held
        entry = _counted.get(address) or _Counted(address, card)
        # No call between these: with Ctrl-C before them nothing is counted, and after them the array's end is enough.
        held.entry = entry
        _counted[address] = entry
        entry.arrays.add(id(held))
        _lingering.pop(address, None)
        if is_recording():
            _keep(entry, x.handle)


def require_shown(handles: Iterable[int]) -> None:
    """Raise `SimulationError` where one of these arrays is on a card that was taken away."""
    for handle in handles:
        entry = _entry_of(handle)
        if entry is not None:
            entry.card.require_shown()


def may_outlive(handles: Iterable[Any]) -> None:
    """Note that MXNet itself may go on using the chunks of these arrays when Python's arrays are gone."""
    for handle in handles:
        entry = _entry_of(handle.value)
        if entry is not None and entry.kept is None:
            with _lock:
                _keep(entry, handle)


def settle() -> None:
    """Give back what MXNet has let go of, once all work on it is done."""
    with _lock:
        _sweep()
        unsure = [entry for entry in _lingering.values() if _holders(entry) != entry.settled]
        waiting = [entry.kept for entry in unsure]  # holds them while the lock is not held
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


def _make_room(card: Card, nbytes: int) -> None:
    """Have MXNet's leavings given back before a card is said to be full, or fuller than it ever was."""
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
    """Take note of what has died; what is done twice, after Ctrl-C, is done once."""
    while _dropped:
        _leave(_dropped[0])
        _dropped.popleft()


def _leave(held: _Held) -> None:
    key: int | None = getattr(held, "key", None)  # None: Ctrl-C came before it had one
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
    """Give back what nobody holds any more."""
    global _look_again
    _drain()
    for entry in reversed(list(_lingering.values())):  # what was made last may hold what it was made of
        if entry.kept is not None and entry.kept.is_alone():
            _release(entry)
    _look_again = 2 * len(_lingering) + _ROOM


def _release(entry: _Counted) -> None:
    entry.kept = None
    _counted.pop(entry.address, None)  # the card counts it as long as it is referred to
    _lingering.pop(entry.address, None)
