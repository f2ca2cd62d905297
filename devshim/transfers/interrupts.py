"""Blocks that Ctrl-C does not interrupt."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["defer_sigint"]


@contextmanager
def defer_sigint() -> Iterator[None]:
    """Delay Ctrl-C until the block has ended; it never arrives in threads other than the main one."""
    # The functions of `signal` without enums, which would take 10 us.
    import _signal as signal  # type: ignore[import-not-found]
    from threading import get_ident, main_thread

    if get_ident() != main_thread().ident:
        yield
        return
    waiting: list[Any] = []
    before = signal.getsignal(signal.SIGINT)
    if before is None:  # not set from Python: leave it alone
        yield
        return
    signal.signal(signal.SIGINT, lambda *received: waiting.append(received))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if waiting:
            signal.raise_signal(signal.SIGINT)  # even without a Python handler, when it ends the process
