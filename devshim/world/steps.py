"""The numbered collectives that a rank has started: ranks compare them, and the agent reports them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from devshim.errors import UnsupportedError

__all__ = ["Step", "Steps"]


@dataclass(frozen=True)
class Step:
    """One collective.

    Attributes:
        number: Its number, from 1, which is the same on every rank.
        what: What it does: ``all_reduce, sum of float32 (10,)``.
        began: When this rank reached it, by `time.monotonic`.
    """

    number: int
    what: str
    began: float


class Steps:
    """The collectives of one process.

    Attributes:
        number: How many have started.
        doing: The one that runs now, or None.
        engine: ``"runs"`` or ``"none"``, as the last call found the framework's engine; ``"starts"`` while it starts;
            empty before the first call.
    """

    def __init__(self) -> None:
        self.number: int = 0
        self.doing: Step | None = None
        self.engine: str = ""
        self._running = threading.RLock()
        self._process = os.getpid()

    @contextmanager
    def alone(self, what: str) -> Iterator[None]:
        """Refuse collectives of other threads of this rank until the block ends.

        Raises:
            UnsupportedError: Another thread is in a block of this kind; the order of two threads can differ between
                ranks. Or the rank has forked this process.
        """
        if os.getpid() != self._process:
            msg = f"{what} was called in process {os.getpid()}, which is not a rank: the rank has forked it"
            raise UnsupportedError(msg, "call ds.world() in this process: it is a world of one rank")
        if not self._running.acquire(blocking=False):
            doing, thread = self.doing, threading.current_thread().name
            msg = (
                f"{what} was called in thread {thread!r} while another thread of this rank was in a call of ds.world()"
            )
            if doing is not None:
                msg += f": step {doing.number} ({doing.what})"
            raise UnsupportedError(msg, "make all calls of ds.world() from one thread, or under one lock")
        try:
            yield
        finally:
            self._running.release()

    @contextmanager
    def step(self, what: str) -> Iterator[Step]:
        """Count one collective, which runs in the block.

        Raises:
            UnsupportedError: As for `alone`.
        """
        with self.alone(what):
            self.number += 1
            with self._report(self.number, what) as step:
                yield step

    @contextmanager
    def start(self, what: str) -> Iterator[Step]:
        """Report the start of an engine, which runs in the block, as a part of the next collective.

        It is not counted: not every rank and framework has an engine, and numbers must be the same on all.

        Raises:
            UnsupportedError: As for `alone`.
        """
        with self.alone(what):
            before, self.engine = self.engine, "starts"
            try:
                with self._report(self.number + 1, what) as step:
                    yield step
            finally:
                self.engine = before

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Let the time in a block not count towards that of a step around it: `doing` begins again after the block."""
        before, self.doing = self.doing, None
        try:
            yield
        finally:
            self.doing = before and replace(before, began=time.monotonic())

    @contextmanager
    def _report(self, number: int, what: str) -> Iterator[Step]:
        self.doing = step = Step(number, what, time.monotonic())
        try:
            yield step
        finally:
            self.doing = None
