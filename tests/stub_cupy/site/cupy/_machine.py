"""GPUs that do not exist: the current one of a thread, their contexts, their memory, and the work of their streams.

A GPU's memory is the host's. Work is done when it is requested or, with `LATE`, when something waits for its stream.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import Counter
from typing import Any

CARDS = int(os.environ.get("STUB_CUPY_GPUS") or 2)
BYTES = 1 << 28
LATE = [False]
BROKEN: list[str] = []
"""The error of CUDA if it cannot start."""

contexts: set[int] = set()
taken: Counter[int] = Counter()
cached: Counter[int] = Counter()
limits: dict[int, int] = {}
calls: Counter[str] = Counter()
_lock = threading.RLock()
_here = threading.local()


class Stream:
    """The work of one GPU in the order of its requests."""

    def __init__(self, card: int) -> None:
        self.card = card
        self._waiting: list[Any] = []
        self.asked = self.done = 0

    def ask(self, work: Any) -> None:
        with _lock:
            self.asked += 1
            self._waiting.append(work)
            if not LATE[0]:
                self.work_off()

    def work_off(self, until: int | None = None) -> None:
        with _lock:
            while self._waiting and (until is None or self.done < until):
                work = self._waiting.pop(0)
                self.done += 1
                work()


_streams: list[Stream] = []
_default: dict[int, Stream] = {}


def new_stream() -> Stream:
    made = Stream(current())
    _streams.append(made)
    return made


def stream() -> Stream:
    """Return this thread's stream on its current GPU."""
    card = current()
    contexts.add(card)
    chosen = getattr(_here, "streams", {}).get(card)
    if chosen is not None:
        return chosen
    if card not in _default:
        _default[card] = new_stream()
    return _default[card]


def choose(chosen: Stream | None, card: int) -> Stream | None:
    """Make a stream this thread's on a GPU; return the previous one."""
    streams = _here.__dict__.setdefault("streams", {})
    before = streams.pop(card, None)
    if chosen is not None:
        streams[card] = chosen
    return before


def wait(card: int) -> None:
    calls["deviceSynchronize"] += 1
    for each in [each for each in _streams if each.card == card]:
        each.work_off()


def current() -> int:
    return getattr(_here, "card", 0)


def set_current(card: int) -> None:
    """Make a GPU current, like ``cudaSetDevice`` since CUDA 12: it creates a context."""
    _here.card = card
    contexts.add(card)


def room(card: int) -> int:
    return min(BYTES, limits.get(card, BYTES)) - taken[card] - cached[card]


def hold(owner: object, card: int, nbytes: int) -> None:
    """Count bytes for as long as an object lives; afterwards they are in the pool."""
    contexts.add(card)
    taken[card] += nbytes
    cached[card] = max(0, cached[card] - nbytes)
    weakref.finalize(owner, _release, card, nbytes).atexit = False


def _release(card: int, nbytes: int) -> None:
    taken[card] -= nbytes
    cached[card] += nbytes
