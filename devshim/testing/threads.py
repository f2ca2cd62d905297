"""Functions run in their own thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

__all__ = ["in_thread"]


def in_thread(fn: Callable[[], Any]) -> Any:
    """Run a function in a new thread with a new context, and return its result or raise its error."""
    outcome: list[Any] = []

    def target() -> None:
        try:
            outcome.extend((fn(), None))
        except BaseException as error:
            outcome.extend((None, error))

    thread = threading.Thread(target=target)
    thread.start()
    thread.join()
    if outcome[1] is not None:
        raise outcome[1]
    return outcome[0]
