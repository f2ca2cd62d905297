"""The order of work in streams, which decides when a late copy arrives: ``ds.simulate(2, async_copies="late")``.

Work in one stream is in order. Work in two streams is not, unless one waits for the other, or for an event in it. Each
stream therefore has a clock: for each stream that it has waited for, the number of the last copy there that it waits
for.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterable, Mapping

import torch

from devshim_backends._torch.simulation.internals.state import CURRENT

__all__ = [
    "Clock",
    "StreamKey",
    "clock_of",
    "clock_of_gpu",
    "current_stream",
    "current_streams",
    "forget",
    "has_changed",
    "merge",
    "replace_streams",
    "set_current_stream",
    "stream_at",
    "wait",
]

StreamKey = tuple[int, int]
"""A GPU's index and the number of one of its streams; 0 is the default stream."""
Clock = Mapping[StreamKey, float]
"""Stream -> the number of the last of its copies that is complete."""

ALL = float("inf")
_LOCK = threading.Lock()
_WAITED: dict[StreamKey, dict[StreamKey, float]] = {}
"""Stream -> its waits for other streams."""


_MAX_CHANGES = 10_000
"""How many changes of a thread's current stream are kept for a GPU: before them, the default stream counts."""
_next_node = torch._C._autograd._get_sequence_nr
"""Returns the number that the thread's next node of a graph will get."""


class _Current(threading.local):
    """A thread's current stream of each GPU, by its number."""

    def __init__(self) -> None:
        self.of_gpu: dict[int, int] = {}
        self.changes: dict[int, list[tuple[float, int]]] = {}
        """GPU -> the number of the first node that is made in a stream, and the stream."""


_CURRENT = _Current()


def current_stream(gpu: int) -> StreamKey:
    """Return this thread's current stream of a GPU."""
    follow = CURRENT.follow
    if follow is not None:
        follow()
    return gpu, _CURRENT.of_gpu.get(gpu, 0)


def set_current_stream(gpu: int, number: int) -> int:
    """Make a stream this thread's current one of a GPU, and return the number of the previous one."""
    before = current_stream(gpu)[1]
    if number != before:
        _CURRENT.of_gpu[gpu] = number
        _note_change(gpu, number)
    return before


def current_streams() -> dict[int, int]:
    """Return the numbers of this thread's current streams by their GPU, without those of the backward pass."""
    return dict(_CURRENT.of_gpu)


def replace_streams(streams: Mapping[int, int]) -> None:
    """Make these streams this thread's current ones, and the default streams of all other GPUs."""
    before, _CURRENT.of_gpu = _CURRENT.of_gpu, dict(streams)
    for gpu in {*before, *streams}:
        if before.get(gpu, 0) != streams.get(gpu, 0):
            _note_change(gpu, streams.get(gpu, 0))


def _note_change(gpu: int, number: int) -> None:
    changes = _CURRENT.changes.setdefault(gpu, [])
    node = _next_node()
    if changes and changes[-1][0] == node:
        changes.pop()
    changes.append((node, number))
    if len(changes) > _MAX_CHANGES:
        del changes[: _MAX_CHANGES // 2]


def has_changed(gpu: int) -> bool:
    """Return True if this thread has made another stream of a GPU current than the default one."""
    return gpu in _CURRENT.changes


def stream_at(gpu: int, node: int) -> int:
    """Return the number of the stream that was this thread's current one when it made a node of a graph."""
    changes = _CURRENT.changes[gpu]
    position = bisect_right(changes, (node, ALL))
    return changes[position - 1][1] if position else 0


def clock_of(stream: StreamKey, until: float = ALL) -> Clock:
    """Return the clock after the work in a stream, with its own copies up to a number."""
    with _LOCK:
        return {**_WAITED.get(stream, {}), stream: until}


def clock_of_gpu(gpu: int) -> Clock:
    """Return the clock of other streams after the work in all streams of a GPU."""
    with _LOCK:
        return merge(waited for stream, waited in _WAITED.items() if stream[0] == gpu)


def merge(clocks: Iterable[Clock]) -> Clock:
    """Return the clock after all of some clocks."""
    merged: dict[StreamKey, float] = {}
    for clock in clocks:
        _merge(merged, clock)
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
