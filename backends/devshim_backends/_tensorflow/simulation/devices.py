"""What is on TensorFlow's simulated cards, block by block.

Requirements this module answers:

* Memory is counted once per card, however many tensors and variables show it: TensorFlow's tensors share it after
  ``identity``, ``reshape``, a split or slice along the first axis, and as values of variables.
* A block stays for as long as anything shows a part of it, as in TensorFlow, whose tensors keep the whole buffer: what
  is known of tensors and variables refers to the block, and the card counts its bytes for as long as it is there.
* A tensor may die in the middle of anything, the garbage collector's work included: its death is noted (`GONE`), by a
  function in C, and settled by the next who has the lock.  What an interrupt has left half done is done by the next.

A block is known by its address.  That is sound, because memory in which a living tensor lies is not given to another.
"""

from __future__ import annotations

from _thread import allocate_lock
from bisect import bisect_left, bisect_right, insort
from collections import deque
from typing import TYPE_CHECKING, Any, cast
from weakref import ref

from devshim.simulation.memory import ROUND, Card, Cards
from devshim_backends._tensorflow.failures import FullCardError

if TYPE_CHECKING:
    from devshim.devices.device import Device
    from devshim.errors import OutOfMemoryError

__all__ = ["APART", "CARDS", "GONE", "LOCK", "Block", "Held", "TensorflowCard", "settle"]


APART = -1
"""The address of memory that no tensor will ever show."""


class Held(ref):  # type: ignore[type-arg]  # generic for the type checker only
    """A weak reference to a tensor that knows which block it shows."""

    __slots__ = ("block",)

    block: Block

    def leave(self) -> None:
        """Take note that the tensor is gone."""
        block = getattr(self, "block", None)  # None: it could not be counted
        if block is not None:
            block.tensors.discard(id(self))
        ALIVE.pop(id(self), None)


ALIVE: dict[int, Held] = {}
"""The references to living tensors, by the address of the reference."""


class Block:
    """Memory on a card, counted there for as long as something refers to it.

    Attributes:
        card: Whose.
        start: Its address, or `APART`.
        end: The address behind it.
        tensors: What refers to the tensors that show it, by its address.
        variables: The variables whose value it holds, by the addresses of their handles.
    """

    __slots__ = ("__weakref__", "_more", "card", "end", "start", "tensors", "variables")

    def __init__(self, card: TensorflowCard, start: int, end: int) -> None:
        self.card, self.start, self.end = card, start, end
        self.tensors: set[int] = set()
        self.variables: set[int] = set()
        self._more: list[Block] = []

    def show(self, held: Held) -> None:
        """Note that a tensor shows it, until that is gone."""
        held.block = self
        ALIVE[id(held)] = held
        self.tensors.add(id(held))

    def grow(self, end: int) -> None:
        """Count more memory behind it; raises as `Card.hold` does."""
        rounded = [-(-(last - self.start) // ROUND) * ROUND for last in (self.end, end)]
        more = Block(self.card, APART, APART)
        self.card.hold(more, rounded[1] - rounded[0])
        self._more.append(more)
        self.end = end


class _Listed(ref):  # type: ignore[type-arg]  # generic for the type checker only
    """A weak reference to a block that knows its address."""

    __slots__ = ("start",)

    start: int


class TensorflowCard(Card):
    """A simulated card, and the blocks on it; everything below is called with `LOCK` held."""

    def __init__(self, device: Device, full: type[OutOfMemoryError]) -> None:
        super().__init__(device, full)
        self._starts: list[int] = []
        self._blocks: dict[int, _Listed] = {}
        self._left: deque[_Listed] = deque()

    def at(self, address: int) -> Block | None:
        """Return the block in which an address lies."""
        self._unlist()
        while place := bisect_right(self._starts, address):
            listed = self._blocks.get(self._starts[place - 1])
            found = None if listed is None else listed()
            if found is not None:
                return found if address < found.end else None
            del self._starts[place - 1]  # nothing refers to that block any more
        return None

    def _unlist(self) -> None:
        """Forget where blocks were."""
        left = self._left
        while left:
            start = getattr(left[0], "start", APART)  # an interrupt may have come before it had one
            if self._blocks.get(start) is left[0]:
                del self._blocks[start]
            place = bisect_left(self._starts, start)
            if start not in self._blocks and place < len(self._starts) and self._starts[place] == start:
                del self._starts[place]
            left.popleft()

    def has_room(self, nbytes: int) -> bool:
        """Whether some memory fits for certain, whatever variables have given up meanwhile."""
        return self.limit is None or self._used + nbytes + ROUND <= self.limit

    def enter(self, start: int, end: int) -> Block:
        """Return the block of some memory, which is counted if it was not; raises as `Card.hold` does."""
        found = self.at(start)
        if found is None:
            found = Block(self, start, end)
            self.hold(found, end - start)
            listed = _Listed(found, self._left.append)
            listed.start = start
            insort(self._starts, start)
            self._blocks[start] = listed
        elif end > found.end:  # a part of it was met first
            found.grow(end)
        return found

    def enter_apart(self, nbytes: int) -> Block:
        """Return a new block without an address; raises as `Card.hold` does."""
        made = Block(self, APART, APART)
        self.hold(made, nbytes)
        return made


class TensorflowCards(Cards):
    """TensorFlow's simulated cards."""

    def new(self, device: Device) -> Card:
        return TensorflowCard(device, self._full)

    def settle(self) -> None:
        with LOCK:
            settle()

    def __getitem__(self, index: int) -> TensorflowCard:
        return cast("TensorflowCard", super().__getitem__(index))


CARDS = TensorflowCards(full=FullCardError)

LOCK = allocate_lock()
"""Held around everything that changes which blocks there are, and never around an operator."""

GONE: deque[Any] = deque()
"""The weak references whose objects are gone, each with a method ``leave`` that can be called twice."""


def settle() -> None:
    """Do what was noted, with the lock held."""
    while GONE:
        GONE[0].leave()
        GONE.popleft()
