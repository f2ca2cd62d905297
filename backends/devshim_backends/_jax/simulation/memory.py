"""The memory of simulated GPUs on JAX, counted buffer by buffer.

Requirements this module answers:

* The hooks in `hooks` report each new array, so JAX need not be asked about all living arrays, which costs 10 us per
  array. A `_Buffer` counts while an array refers to it, so the count goes down when the last array over it is gone.
* `settle` asks JAX which arrays are alive: when the user asks for the memory, and before an error for a full device. It
  finds arrays that the hooks did not see, and drops deleted ones.
* A buffer that several arrays share counts once. A buffer that was donated to an executable does not count.
* When GPUs are simulated again, arrays that are on them already are counted, but not refused.

Not counted: memory that an executable needs while it runs, and NumPy arguments that JAX copies for one call.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections import deque
from math import prod
from typing import TYPE_CHECKING, Any
from weakref import ref

import jax

from devshim.simulation.memory import SimulatedDevice, SimulatedDevices
from devshim_backends._jax.transfers.addresses import addresses_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from devshim.errors import OutOfMemoryError


class JaxSimulatedDevices(SimulatedDevices):
    """The memory counts of simulated GPUs for JAX."""

    def count_freed(self) -> None:
        settle()

    def error_class(self) -> type[OutOfMemoryError]:
        """Return the class of the error for a full device."""
        return self._error_class


class _Buffer:
    """Memory on one simulated GPU, counted there while an array refers to it.

    Args:
        native: JAX's device.
        card: The simulated GPU.
        nbytes: The size in bytes.
        there: As for `SimulatedDevice.track`, which raises the same errors.
    """

    __slots__ = ("__weakref__", "card", "native")

    def __init__(self, native: Any, card: SimulatedDevice, nbytes: int, there: bool = False) -> None:
        self.native, self.card = native, card
        card.track(self, nbytes, exists=there)


class _Counted(ref):  # type: ignore[type-arg]  # generic for the type checker only
    """A weak reference to an array, with the array's buffers."""

    __slots__ = ("buffers", "key")

    buffers: list[_Buffer]
    key: int


_lock = allocate_lock()
_cards: dict[Any, SimulatedDevice] = {}
"""Maps JAX devices to simulated GPUs."""
_arrays: dict[int, _Counted] = {}
"""Maps the address of an array to its entry. By now another array may have the address: see `_counted_of`."""
_dropped: deque[_Counted] = deque()
"""Entries of arrays that are gone. The garbage collector adds them without a lock; `_drain` removes them."""


def begin(cards: Mapping[Any, SimulatedDevice]) -> None:
    """Count arrays on these devices, both existing and new ones, and stop counting on all other devices."""
    global _cards
    with _lock:
        _drain()
        for counted in list(_arrays.values()):
            if any(cards.get(buffer.native) is not buffer.card for buffer in counted.buffers):
                _forget(counted)
        _cards = dict(cards)
    settle()


def cards_of(x: Any) -> list[tuple[Any, SimulatedDevice]]:
    """Return the simulated GPUs that an array has parts on, with JAX's devices for them."""
    by_native = _cards
    return [(native, by_native[native]) for native in x.sharding.device_set if native in by_native]


def made(xs: Iterable[Any], *, sources: Iterable[Any] = ()) -> None:
    """Count arrays that have just been made.

    Args:
        xs: The new objects; those that are not arrays are ignored.
        sources: Arrays with which they may share buffers.

    Raises:
        OutOfMemoryError: An array does not fit on its device.
        DeviceFailedError: A device has vanished.
    """
    known = _Sources(sources)
    for x in map(base, xs):
        if x is None or _counted_of(x) is not None:
            continue
        places = cards_of(x)
        if places:
            _make(x, places, known.shared_with(x, [native for native, _ in places]))


def _make(x: Any, places: list[tuple[Any, SimulatedDevice]], shared: Mapping[Any, _Buffer]) -> None:
    size = part_bytes(x)
    taken: list[_Buffer] = []
    with _lock:
        _drain()
        if _counted_of(x) is not None:
            return
        try:
            taken.extend(_Buffer(native, card, size) for native, card in places if native not in shared)
        except BaseException:
            taken.clear()  # the traceback would keep them alive, and they count
            if not shared:  # otherwise the memory also belongs to another array
                x.delete()
            raise
        _add(x, [*shared.values(), *taken])


def arrived(xs: Iterable[Any], native: Any) -> None:
    """Count arrays that came to a device, each whole and in memory of its own; raise the errors that `made` raises."""
    card = _cards[native]
    with _lock:
        _drain()
        for x in xs:
            try:
                buffer = _Buffer(native, card, prod(x.shape) * int(x.dtype.itemsize))
            except BaseException:
                x.delete()
                raise
            _add(x, [buffer])
            del buffer  # it counts while it is referenced, and a traceback would refer to it


def donated(xs: Iterable[Any]) -> None:
    """Drop arrays whose memory was donated to an executable, or deleted."""
    for x in map(base, xs):
        if x is not None and _counted_of(x) is not None and x.is_deleted():
            with _lock:
                counted = _counted_of(x)
                if counted is not None:
                    _forget(counted)


def settle() -> None:
    """Update the counts to the arrays that JAX says are alive."""
    _forget_donated()
    for client in {native.client for native in _cards}:
        alive = client.live_arrays()
        known: dict[tuple[Any, int], _Buffer] | None = None
        for x in alive:
            if _counted_of(x) is None and not x.is_deleted() and cards_of(x):
                if known is None:
                    known = _by_address(alive)
                _adopt(x, known)
    with _lock:
        _drain()


def _forget_donated() -> None:
    donated(x for counted in list(_arrays.values()) if (x := counted()) is not None)


def _counted_of(x: Any) -> _Counted | None:
    """Return the entry of an array, or None; an earlier array may have had the same address."""
    found = _arrays.get(id(x))
    return found if found is not None and found() is x else None


def base(x: Any) -> Any | None:
    """Return the array that has a value's memory, or None if the value has no memory of its own."""
    found = getattr(x, "_base_array", x)  # random keys wrap an array
    return found if isinstance(found, jax.Array) and hasattr(found, "unsafe_buffer_pointer") else None


def part_bytes(x: Any) -> int:
    """Return the bytes that an array takes on each of its devices."""
    shape: tuple[int, ...] = x.sharding.shard_shape(x.shape)
    return prod(shape) * int(x.dtype.itemsize)


def _by_address(alive: Iterable[Any]) -> dict[tuple[Any, int], _Buffer]:
    """Return the buffers that are counted, by device and address."""
    known = {}
    for x in alive:
        counted = _counted_of(x)
        if counted is not None and not x.is_deleted():
            addresses = addresses_of(x)
            known.update({(b.native, addresses[b.native]): b for b in counted.buffers if b.native in addresses})
    return known


def _adopt(x: Any, known: dict[tuple[Any, int], _Buffer]) -> None:
    """Count an array that the hooks did not see."""
    buffers, addresses = [], addresses_of(x)
    for native, card in cards_of(x):
        place = (native, addresses[native])
        if place not in known:
            known[place] = _Buffer(native, card, part_bytes(x), there=True)
        buffers.append(known[place])
    with _lock:
        _add(x, buffers)


class _Sources:
    """The buffers of arrays with which new arrays may share memory. Each array is looked up at most once."""

    def __init__(self, sources: Iterable[Any]) -> None:
        self._sources = sources
        self._counted: list[tuple[Any, _Counted]] | None = None
        self._known: dict[Any, dict[int, _Buffer]] = {}

    def shared_with(self, x: Any, natives: list[Any]) -> dict[Any, _Buffer]:
        """Return the buffers that an array shares, by JAX device."""
        known = {native: found for native in natives if (found := self._on(native))}
        mine = addresses_of(x) if known else {}
        return {native: found[mine[native]] for native, found in known.items() if mine[native] in found}

    def _on(self, native: Any) -> dict[int, _Buffer]:
        """Return the buffers on one device, by address."""
        if native not in self._known:
            self._known[native] = {
                addresses_of(source)[native]: buffer
                for source, counted in self._alive()
                for buffer in counted.buffers
                if buffer.native is native
            }
        return self._known[native]

    def _alive(self) -> list[tuple[Any, _Counted]]:
        if self._counted is None:
            bases = [(source, _counted_of(source)) for source in map(base, self._sources) if source is not None]
            self._counted = [(x, counted) for x, counted in bases if counted is not None and not x.is_deleted()]
        return self._counted


# ---------------------------------------------------------------------- functions to call with the lock held
def _add(x: Any, buffers: list[_Buffer]) -> None:
    counted = _Counted(x, _dropped.append)
    counted.key, counted.buffers = id(x), buffers
    _arrays[counted.key] = counted


def _drain() -> None:
    """Drop the entries of arrays that are gone. If an interrupt stops this, the next call continues it."""
    while _dropped:
        _forget(_dropped[0])
        _dropped.popleft()


def _forget(counted: _Counted) -> None:
    key = getattr(counted, "key", None)  # None if an interrupt came before the key was set
    if key is not None and _arrays.get(key) is counted:
        del _arrays[key]
