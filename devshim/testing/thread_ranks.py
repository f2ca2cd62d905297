"""Ranks as threads of one process: a small stand-in for `World` in tests of what the ranks do together."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import devshim as ds

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ThreadRank", "on_ranks"]


class _Meeting:
    """What the threads share."""

    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size, timeout=60)
        self.words: list[Any] = [None] * size


class ThreadRank:
    """One rank: the members of `World` that checkpoints use, and `part` and `barrier`."""

    def __init__(self, meeting: _Meeting, rank: int) -> None:
        self._meeting = meeting
        self.rank: int = rank
        self.size: int = meeting.barrier.parties
        self.host: str = f"host{rank % 2}"

    def all_gather(self, tree: Any) -> list[Any]:
        """Return the tree of every rank."""
        self._meeting.words[self.rank] = tree
        self._meeting.barrier.wait()
        found = list(self._meeting.words)
        self._meeting.barrier.wait()
        return found

    def barrier(self) -> None:
        """Wait for all ranks."""
        self.all_gather(None)

    def part(self, length: int) -> slice:
        """Return this rank's slice of some rows."""
        rows, more = divmod(length, self.size)
        start = self.rank * rows + min(self.rank, more)
        return slice(start, start + rows + (self.rank < more))


def on_ranks(size: int, work: Callable[[ThreadRank], Any]) -> list[Any]:
    """Run a function on several ranks at once, and return the result of each, or the error that it raised.

    Args:
        size: The number of ranks.
        work: Called with each rank in a thread of its own, with the framework of the caller.
    """
    meeting, name = _Meeting(size), ds.framework().__name__
    results: list[Any] = [None] * size

    def body(rank: int) -> None:
        try:
            with ds.using(name):
                results[rank] = work(ThreadRank(meeting, rank))
        except BaseException as error:
            results[rank] = error

    threads = [threading.Thread(target=body, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
