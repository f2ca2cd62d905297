"""The order of work in streams, which decides when a late copy arrives: ``ds.simulate(2, async_copies="late")``.

Work in one stream is in order. Work in two streams is not, unless one waits for the other, or for an event in it. Each
stream therefore has a clock: for each stream that it has waited for, the number of the last copy there that it waits
for.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

__all__ = ["Clock", "StreamKey", "clock_of", "clock_of_gpu", "current_stream", "forget", "set_current_stream", "wait"]

StreamKey = tuple[int, int]
"""A GPU's index and the number of one of its streams; 0 is the default stream."""
Clock = Mapping[StreamKey, float]
"""Stream -> the number of the last of its copies that is complete."""

ALL = float("inf")
_LOCK = threading.Lock()
_WAITED: dict[StreamKey, dict[StreamKey, float]] = {}
"""Stream -> its waits for other streams."""


class _Current(threading.local):
    """A thread's current stream of each GPU, by its number."""

    def __init__(self) -> None:
        self.of_gpu: dict[int, int] = {}


_CURRENT = _Current()


def current_stream(gpu: int) -> StreamKey:
    """Return this thread's current stream of a GPU."""
    return gpu, _CURRENT.of_gpu.get(gpu, 0)


def set_current_stream(gpu: int, number: int) -> int:
    """Make a stream this thread's current one of a GPU, and return the number of the previous one."""
    before = _CURRENT.of_gpu.get(gpu, 0)
    _CURRENT.of_gpu[gpu] = number
    return before


def clock_of(stream: StreamKey, until: float = ALL) -> Clock:
    """Return the clock after the work in a stream, with its own copies up to a number."""
    with _LOCK:
        return {**_WAITED.get(stream, {}), stream: until}


def clock_of_gpu(gpu: int) -> Clock:
    """Return the clock of other streams after the work in all streams of a GPU."""
    merged: dict[StreamKey, float] = {}
    with _LOCK:
        for stream, waited in _WAITED.items():
            if stream[0] == gpu:
                _merge(merged, waited)
    return merged


def wait(stream: StreamKey, clock: Clock) -> None:
    """Let the next work of a stream come after the copies in a clock."""
    with _LOCK:
        _merge(_WAITED.setdefault(stream, {}), clock)


def forget() -> None:
    """Forget all waits, because no copy is under way."""
    with _LOCK:
        _WAITED.clear()


def _merge(target: dict[StreamKey, float], clock: Clock) -> None:
    for stream, number in clock.items():
        target[stream] = max(target.get(stream, 0), number)
