"""Predict the next step of a job: a sum that all ranks expect needs no comparison before it.

A training loop makes the same calls in each step. All ranks have compared the calls so far, so all expect the same one
next. A rank that does something else knows what its peers expect of it. So it takes part in that sum with zeros, and
says so in the tail, a place of each rank behind the values; then all of them discard the sum, and compare.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from devshim.world.buckets import Source

__all__ = ["Habit", "Sum", "can_have_tail", "has_agreed", "write_tail"]

_OFTEN = 3
"""How often in a row a call must have followed another one before it is expected there."""
_LARGEST = 4 * 2**20
"""Bytes of a sum with a tail: a comparison takes little of the time of a larger one."""
_KINDS = ("float32", "float64")
"""Dtypes of a sum with a tail: they are exact for its numbers."""
_NUMBERS = 4096
_MOST = 64


@dataclass(frozen=True)
class Sum:
    """A sum that all ranks have agreed on.

    Attributes:
        what: The operation, with the dtypes and shapes; the same text on all ranks.
        kind: The name of the dtype.
        size: The number of elements.
        devices: How many devices this rank has in it, and how many all ranks have.
    """

    what: str
    kind: str
    size: int
    devices: tuple[int, int]


class Habit:
    """The calls of a job, as each rank remembers them: what they remember is the same on all.

    Attributes:
        last: The sum in the step before, or None.
        next: The sum that all ranks expect in the next step, or None.
    """

    def __init__(self) -> None:
        self.last: Sum | None = None
        self.next: Sum | None = None
        self._after: dict[str, tuple[Sum, int]] = {}

    def did(self, done: Sum | None) -> None:
        """Remember a step of all ranks; None for one that cannot be expected."""
        if self.last is not None and done is not None:
            before, times = self._after.get(self.last.what, (done, 0))
            if len(self._after) >= _MOST:
                self._after.clear()
            self._after[self.last.what] = (done, times + 1 if before.what == done.what else 1)
        self.last = done
        following, times = self._after.get(done.what, (None, 0)) if done is not None else (None, 0)
        self.next = following if times >= _OFTEN else None

    def broke(self, before: Sum | None) -> None:
        """Forget what followed a sum: a rank did something else."""
        if before is not None:
            self._after.pop(before.what, None)
        self.next = self.last = None


def can_have_tail(sources: Sequence[Source], op: str) -> bool:
    """Return True if a sum of these tensors is small, and of one dtype that is exact for the numbers of a tail."""
    kinds = {source.kind for source in sources}
    is_adding = op in ("sum", "mean") and len(kinds) == 1 and kinds <= set(_KINDS)
    return is_adding and sum(source.size for source in sources) * 8 <= _LARGEST


def write_tail(tail: np.ndarray[Any, Any], rank: int, number: int) -> None:
    """Write this rank's place in the tail of a sum: which step it is in."""
    tail[:] = 0
    tail[rank] = 1 + number % _NUMBERS


def has_agreed(tail: np.ndarray[Any, Any], number: int) -> bool:
    """Return True if all ranks have written that they are in this step."""
    return bool((tail == 1 + number % _NUMBERS).all())
