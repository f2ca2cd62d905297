"""The collectives that a rank has begun, numbered: what the ranks compare, and what a watcher hears."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

__all__ = ["Step", "Steps"]


@dataclass(frozen=True)
class Step:
    """One collective.

    Attributes:
        number: Its number, from 1, which is the same on every rank.
        what: What it does: ``all_reduce, sum of float32 (10,)``.
        began: When this rank came to it, by `time.monotonic`.
    """

    number: int
    what: str
    began: float


class Steps:
    """The collectives of one process.

    Attributes:
        number: How many have begun.
        doing: The one that runs now, or None.
    """

    def __init__(self) -> None:
        self.number: int = 0
        self.doing: Step | None = None

    @contextmanager
    def step(self, what: str) -> Iterator[Step]:
        """Count one collective, which runs in the block."""
        self.number += 1
        self.doing = step = Step(self.number, what, time.monotonic())
        try:
            yield step
        finally:
            self.doing = None
