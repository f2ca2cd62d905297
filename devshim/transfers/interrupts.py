"""Blocks that Ctrl-C does not interrupt."""

from __future__ import annotations

# The functions of `signal` without enums, which would take 10 us.
import _signal as signal  # type: ignore[import-not-found]
from threading import get_ident, main_thread
from typing import Any

__all__ = ["defer_sigint"]


class defer_sigint:
    """A block that delays Ctrl-C until it has ended; Ctrl-C never arrives in threads other than the main one."""

    __slots__ = ("_before", "_waiting")

    def __enter__(self) -> None:
        self._waiting: list[Any] = []
        # None: this is another thread, or the handler was not set from Python and is left alone.
        self._before = signal.getsignal(signal.SIGINT) if get_ident() == main_thread().ident else None
        if self._before is not None:
            waiting = self._waiting
            signal.signal(signal.SIGINT, lambda *received: waiting.append(received))

    def __exit__(self, *failure: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            if self._waiting:
                signal.raise_signal(signal.SIGINT)  # even without a Python handler, when it ends the process
