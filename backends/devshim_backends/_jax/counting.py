"""What JAX's arrays take on simulated cards, counted buffer by buffer.

Requirements this module answers:

* What JAX makes is counted as it is made (`watching` tells), without asking JAX about everything alive, which costs 10
  us per array.  The count goes down when the last array over a buffer is gone.
* The truth is asked for when somebody looks, and before a card is said to be full (`settle`): then arrays that came
  another way are found, and deleted ones are dropped.
* A buffer that several arrays share counts once, and one that was donated to an executable no more.
* What is on a card already is counted, and not refused, when GPUs are simulated anew.

Not counted: what an executable needs while it runs, and arguments of NumPy's that JAX puts on a card for one call.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections import deque
from math import prod
from typing import TYPE_CHECKING, Any
from weakref import ref

import jax

from devshim._cards import ROUND, Card, Cards
from devshim.device import Device

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from devshim.errors import OutOfMemoryError


class JaxCard(Card):
    """A card that can be told of what is on it already."""

    def found(self, nbytes: int) -> int:
        """Count what is there without having been asked for; it may be more than the limit."""
        rounded = -(-nbytes // ROUND) * ROUND
        with self._lock:
            self._settle()
            self._used += rounded
            self._peak = max(self._peak, self._used)
        return rounded


class JaxCards(Cards):
    """The simulated cards of JAX."""

    def new(self, device: Device) -> Card:
        return JaxCard(device, self._full)

    def settle(self) -> None:
        settle()

    def __getitem__(self, index: int) -> JaxCard:
        found = super().__getitem__(index)
        assert isinstance(found, JaxCard)
        return found

    def error_class(self) -> type[OutOfMemoryError]:
        """The class of the error that says a card is full."""
        return self._full


class _Buffer:
    """Memory on one card, and how many arrays share it."""

    __slots__ = ("arrays", "card", "native", "taken")

    def __init__(self, native: Any, card: JaxCard, taken: int) -> None:
        self.native, self.card, self.taken, self.arrays = native, card, taken, 0


class _Counted(ref):  # type: ignore[type-arg]  # generic for the type checker only
    """A weak reference to an array, and its buffers."""

    __slots__ = ("buffers", "key")

    buffers: list[_Buffer]
    key: int


_lock = allocate_lock()
_cards: dict[Any, JaxCard] = {}
"""By JAX's device."""
_arrays: dict[int, _Counted] = {}
"""By the array's address; an array that is gone has left before another can be there."""
_dropped: deque[_Counted] = deque()
"""Of arrays that are gone: noted by the garbage collector, which takes no lock, and settled by the next."""


def begin(cards: Mapping[Any, JaxCard]) -> None:
    """Count on these cards: what is there already, and what will be; what is on others counts no more."""
    with _lock:
        _drain()
        for counted in list(_arrays.values()):
            if any(cards.get(buffer.native) is not buffer.card for buffer in counted.buffers):
                _forget(counted)
        _cards.clear()
        _cards.update(cards)
    settle()


def cards_of(x: Any) -> list[tuple[Any, JaxCard]]:
    """The cards an array has parts on, with JAX's devices for them."""
    return [(native, _cards[native]) for native in x.sharding.device_set if native in _cards]


def made(xs: Iterable[Any], *, sources: Iterable[Any] = ()) -> None:
    """Count arrays that have just been made.

    Args:
        xs: What was made; whatever is no array is left out.
        sources: Arrays whose buffers they may share.

    Raises:
        OutOfMemoryError: One does not fit on its card.
        DeviceFailedError: A card has vanished.
    """
    known = _Sources(sources)
    for x in map(base, xs):
        if x is None or id(x) in _arrays:
            continue
        places = cards_of(x)
        if places:
            _make(x, places, known.shared_with(x, [native for native, _ in places]))


def _make(x: Any, places: list[tuple[Any, JaxCard]], shared: Mapping[Any, _Buffer]) -> None:
    size, taken = part_bytes(x), []
    with _lock:
        _drain()
        if id(x) in _arrays:
            return
        try:
            for native, card in places:
                if native not in shared:
                    taken.append(_Buffer(native, card, card.take(size)))
        except BaseException:
            for buffer in taken:
                buffer.card.give(buffer.taken)
            if not shared:  # else it is somebody else's memory, too
                x.delete()
            raise
        _add(x, [*shared.values(), *taken])


def arrived(xs: Iterable[Any], native: Any) -> None:
    """Count arrays, each whole and in memory of its own, that have just come to a card; raises as `made` does."""
    card = _cards[native]
    with _lock:
        _drain()
        for x in xs:
            try:
                buffer = _Buffer(native, card, card.take(prod(x.shape) * int(x.dtype.itemsize)))
            except BaseException:
                x.delete()
                raise
            _add(x, [buffer])


def donated(xs: Iterable[Any]) -> None:
    """Drop those whose memory was given to an executable, or given back."""
    for x in map(base, xs):
        if x is not None and id(x) in _arrays and x.is_deleted():
            with _lock:
                counted = _arrays.get(id(x))
                if counted is not None:
                    _forget(counted)


def settle() -> None:
    """Make the count what JAX itself says is alive."""
    donated(x for counted in list(_arrays.values()) if (x := counted()) is not None)
    for client in {native.client for native in _cards}:
        alive = client.live_arrays()
        known: dict[tuple[Any, int], _Buffer] | None = None
        for x in alive:
            if id(x) not in _arrays and not x.is_deleted() and cards_of(x):
                if known is None:
                    known = _by_address(alive)
                _adopt(x, known)
    with _lock:
        _drain()


def base(x: Any) -> Any | None:
    """The array that holds a value's memory; None for what holds none of its own."""
    found = getattr(x, "_base_array", x)  # random keys are a shell around one
    return found if isinstance(found, jax.Array) and hasattr(found, "unsafe_buffer_pointer") else None


def part_bytes(x: Any) -> int:
    """How many bytes an array takes on each of its devices."""
    shape: tuple[int, ...] = x.sharding.shard_shape(x.shape)
    return prod(shape) * int(x.dtype.itemsize)


def _by_address(alive: Iterable[Any]) -> dict[tuple[Any, int], _Buffer]:
    """The buffers that are counted, by device and address."""
    known = {}
    for x in alive:
        counted = _arrays.get(id(x))
        if counted is not None and not x.is_deleted():
            addresses = _addresses(x)
            known.update({(b.native, addresses[b.native]): b for b in counted.buffers if b.native in addresses})
    return known


def _adopt(x: Any, known: dict[tuple[Any, int], _Buffer]) -> None:
    """Count an array that came a way of its own."""
    buffers, addresses = [], _addresses(x)
    for native, card in cards_of(x):
        place = (native, addresses[native])
        if place not in known:
            known[place] = _Buffer(native, card, card.found(part_bytes(x)))
        buffers.append(known[place])
    with _lock:
        _add(x, buffers)


def _addresses(x: Any) -> dict[Any, int]:
    """Where an array's parts are on its devices; a part without elements is nowhere."""
    if len(x.sharding.device_set) == 1:
        return dict.fromkeys(x.sharding.device_set, x.unsafe_buffer_pointer() if x.size else 0)
    parts = [(shard.device, shard.data) for shard in x.addressable_shards]
    return {native: part.unsafe_buffer_pointer() if part.size else 0 for native, part in parts}


class _Sources:
    """The buffers of arrays that others may turn out to lie in; each is looked at once, however many those are."""

    def __init__(self, sources: Iterable[Any]) -> None:
        self._sources = sources
        self._counted: list[tuple[Any, _Counted]] | None = None
        self._known: dict[Any, dict[int, _Buffer]] = {}

    def shared_with(self, x: Any, natives: list[Any]) -> dict[Any, _Buffer]:
        """The buffers that an array lies in, by JAX's device."""
        known = {native: found for native in natives if (found := self._on(native))}
        mine = _addresses(x) if known else {}
        return {native: found[mine[native]] for native, found in known.items() if mine[native] in found}

    def _on(self, native: Any) -> dict[int, _Buffer]:
        """The buffers on one device, by address."""
        if native not in self._known:
            self._known[native] = {
                _addresses(source)[native]: buffer
                for source, counted in self._alive()
                for buffer in counted.buffers
                if buffer.native is native
            }
        return self._known[native]

    def _alive(self) -> list[tuple[Any, _Counted]]:
        if self._counted is None:
            bases = [(source, _arrays.get(id(source))) for source in map(base, self._sources) if source is not None]
            self._counted = [(x, counted) for x, counted in bases if counted is not None and not x.is_deleted()]
        return self._counted


# ---------------------------------------------------------------------- with the lock held
def _add(x: Any, buffers: list[_Buffer]) -> None:
    counted = _Counted(x, _gone)
    counted.key, counted.buffers = id(x), buffers
    for buffer in buffers:
        buffer.arrays += 1
    _arrays[counted.key] = counted


def _gone(counted: _Counted) -> None:
    """Called by the garbage collector in the middle of anything."""
    if _arrays.get(counted.key) is counted:
        del _arrays[counted.key]
        _dropped.append(counted)


def _drain() -> None:
    """Take note of what is gone."""
    while _dropped:
        _release(_dropped.popleft())


def _forget(counted: _Counted) -> None:
    if _arrays.pop(counted.key, None) is counted:
        _release(counted)


def _release(counted: _Counted) -> None:
    for buffer in counted.buffers:
        buffer.arrays -= 1
        if buffer.arrays == 0:
            buffer.card.give(buffer.taken)
