"""Predict the next step of a job: a sum that all ranks expect needs no comparison before it.

A training loop makes the same calls in each step. All ranks have compared the calls so far, so all of them expect the
same next call. A rank that does something else can tell what its peers expect. It therefore takes part in that sum with
zeros, and marks this in the tail, which has an element for each rank after the values. All ranks then discard the sum
and compare.
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
"""The number of times in a row that a call must follow another one before it is expected there."""
_LARGEST = 4 * 2**20
"""The maximum bytes of a sum with a tail; for a larger sum, the time of a comparison does not matter."""
_KINDS = ("float32", "float64")
"""Dtypes of a sum with a tail: they represent the tail's numbers exactly."""
_NUMBERS = 4096
_MOST = 64


@dataclass(frozen=True)
class Sum:
    """A sum that all ranks have agreed on.

    Attributes:
        what: The operation, with the dtypes and shapes; the same text on all ranks.
        kind: The name of the dtype.
        size: The number of elements.
        devices: The number of devices of this rank in the sum, and of all ranks.
    """

    what: str
    kind: str
    size: int
    devices: tuple[int, int]


class Habit:
    """The calls of a job, as each rank remembers them; the memory is the same on all ranks.

    Attributes:
        last: The sum in the step before, or None.
        next: The sum that all ranks expect in the next step, or None.
    """

    def __init__(self) -> None:
        self.last: Sum | None = None
        self.next: Sum | None = None
        self._after: dict[str, tuple[Sum, int]] = {}

    def did(self, done: Sum | None) -> None:
        """Remember a step of all ranks; None for a step that cannot be predicted."""
        if self.last is not None and done is not None:
            before, times = self._after.get(self.last.what, (done, 0))
            if len(self._after) >= _MOST:
                self._after.clear()
            self._after[self.last.what] = (done, times + 1 if before.what == done.what else 1)
        self.last = done
        following, times = self._after.get(done.what, (None, 0)) if done is not None else (None, 0)
        self.next = following if times >= _OFTEN else None

    def broke(self, before: Sum | None) -> None:
        """Forget the successor of a sum: a rank did something else."""
        if before is not None:
            self._after.pop(before.what, None)
        self.next = self.last = None


def can_have_tail(sources: Sequence[Source], op: str) -> bool:
    """Return True if a sum of these tensors is small, and of one dtype that is exact for the numbers of a tail."""
    kinds = {source.kind for source in sources}
    is_adding = op in ("sum", "mean") and len(kinds) == 1 and kinds <= set(_KINDS)
    return is_adding and sum(source.size for source in sources) * 8 <= _LARGEST


def write_tail(tail: np.ndarray[Any, Any], rank: int, number: int) -> None:
    """Write this rank's element in the tail of a sum: its current step."""
    tail[:] = 0
    tail[rank] = 1 + number % _NUMBERS


def has_agreed(tail: np.ndarray[Any, Any], number: int) -> bool:
    """Return True if all ranks have written that they are in this step."""
    return bool((tail == 1 + number % _NUMBERS).all())
