"""What is on TensorFlow's simulated cards, block by block.

Requirements this module answers:

* Memory is counted once per card, however many tensors and variables show it: TensorFlow's tensors share it after
  ``identity``, ``reshape``, a split or slice along the first axis, and as values of variables.
* A block stays for as long as anything shows a part of it, as in TensorFlow, whose tensors keep the whole buffer.
* A tensor may die in the middle of anything, the garbage collector's work included: what lets go of a block is noted
  (`note`), and settled by the next who has the lock.

A block is known by its address.  That is sound, because memory in which a living tensor lies is not given to another.
"""

from __future__ import annotations

from _thread import allocate_lock
from bisect import bisect_left, bisect_right, insort
from collections import deque
from typing import TYPE_CHECKING, Any, cast
from weakref import ref

from devshim._cards import ROUND, Card, Cards
from devshim_backends._tensorflow.failures import FullCardError

if TYPE_CHECKING:
    from devshim.device import Device
    from devshim.errors import OutOfMemoryError

__all__ = ["APART", "CARDS", "LOCK", "Block", "Held", "TensorflowCard", "note", "settle"]


APART = -1
"""The address of memory that no tensor will ever show."""


class Held(ref):  # type: ignore[type-arg]  # generic for the type checker only
    """A weak reference to a tensor that knows which block it shows."""

    __slots__ = ("block",)

    block: Block


class Block:
    """Memory on a card.

    Attributes:
        card: Whose.
        start: Its address, or `APART`.
        end: The address behind it.
        rounded: The bytes it is counted with.
        tensors: How many tensors show it.
        variables: The variables whose value it holds.
    """

    __slots__ = ("card", "end", "rounded", "start", "tensors", "variables")

    def __init__(self, card: TensorflowCard, start: int, end: int, rounded: int) -> None:
        self.card, self.start, self.end, self.rounded = card, start, end, rounded
        self.tensors = 0
        self.variables: list[Any] = []


class TensorflowCard(Card):
    """A simulated card, and the blocks on it; everything below is called with `LOCK` held."""

    def __init__(self, device: Device, full: type[OutOfMemoryError]) -> None:
        super().__init__(device, full)
        self._starts: list[int] = []
        self._blocks: dict[int, Block] = {}

    def at(self, address: int) -> Block | None:
        """Return the block in which an address lies."""
        place = bisect_right(self._starts, address)
        if place == 0:
            return None
        found = self._blocks[self._starts[place - 1]]
        return found if address < found.end else None

    def has_room(self, nbytes: int) -> bool:
        """Whether some memory fits for certain, whatever variables have given up meanwhile."""
        return self.limit is None or self._used + nbytes + ROUND <= self.limit

    def enter(self, start: int, end: int) -> Block:
        """Return the block of some memory, which is counted if it was not; raises as `Card.take` does."""
        found = self.at(start)
        if found is None:
            found = Block(self, start, end, self.take(end - start))
            self._blocks[start] = found
            insort(self._starts, start)
        elif end > found.end:  # a part of it was met first
            found.rounded += self.take(-(-(end - found.start) // ROUND) * ROUND - found.rounded)
            found.end = end
        return found

    def enter_apart(self, nbytes: int) -> Block:
        """Return a new block without an address; raises as `Card.take` does."""
        return Block(self, APART, APART, self.take(nbytes))

    def leave(self, block: Block) -> None:
        """Give a block back if nothing shows it any more."""
        if block.tensors or block.variables:
            return
        self.give(block.rounded)
        if block.start != APART:
            del self._blocks[block.start]
            del self._starts[bisect_left(self._starts, block.start)]


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

_GONE: deque[Any] = deque()


def note(gone: Any) -> None:
    """Note what shows its ``block`` no longer; takes no lock, because the garbage collector may call it inside one."""
    _GONE.append(gone)


def settle() -> None:
    """Do what was noted, with the lock held."""
    while _GONE:
        gone = _GONE.popleft()
        block = gone.block
        if isinstance(gone, Held):
            block.tensors -= 1
            block.card.leave(block)
        elif block is not None:
            gone.block = None
            block.variables.remove(gone)
            block.card.leave(block)
