"""The events of an agent's ranks, kept in order until the launcher has received them."""

from __future__ import annotations

import threading
from typing import Any

__all__ = ["News"]

_WAITING, _OF_LINE = 2**20, 64
"""The most characters of output that may wait for the launcher; each line adds this many. A rank that prints more waits
in ``print``."""


class News:
    """The events that the launcher has not received. Any thread may add to them."""

    def __init__(self) -> None:
        self._events: list[tuple[Any, ...]] = []
        self._given: list[tuple[Any, ...]] = []
        self._answers = self._waiting = 0
        self._changed = threading.Condition()

    @property
    def is_full(self) -> bool:
        """True if the launcher has not yet taken what was printed."""
        return self._waiting > _WAITING

    def add(self, *event: Any) -> None:
        """Add an event."""
        with self._changed:
            self._events.append(event)
            self._changed.notify_all()

    def add_line(self, rank: int, name: str, line: str) -> None:
        """Add a line of a rank's output; wait first while too much output waits for the launcher."""
        with self._changed:
            self._changed.wait_for(lambda: not self.is_full)
            self._waiting += len(line) + _OF_LINE
            last = self._events[-1] if self._events else ()
            if last[:3] == ("output", rank, name):
                last[3].append(line)
            else:
                self.add("output", rank, name, [line])

    def take(self, patience: float, received: int) -> list[tuple[Any, ...]]:
        """Return what happened since the last answer; wait for an event, but at most ``patience`` seconds.

        Args:
            patience: How long to wait.
            received: How many answers have arrived; if the last one has not, it is given again.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._events or received != self._answers, patience)
            if received == self._answers:
                self._given, self._events, self._waiting = self._events, [], 0
                self._answers += 1
            self._changed.notify_all()
            return self._given
