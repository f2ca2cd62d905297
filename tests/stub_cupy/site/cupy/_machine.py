"""GPUs that do not exist: the current one of a thread, their contexts, their memory, and the work of their streams.

A GPU's memory is the host's. Work is done when it is requested or, with `LATE`, when something waits for its stream.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import Counter
from typing import Any

GPU_COUNT = int(os.environ.get("STUB_CUPY_GPUS") or 2)
BYTES = 1 << 28
LATE = [False]
ERRORS: list[str] = []
"""The error of CUDA if it cannot start."""

contexts: set[int] = set()
allocated: Counter[int] = Counter()
cached: Counter[int] = Counter()
limits: dict[int, int] = {}
calls: Counter[str] = Counter()
_lock = threading.RLock()
_thread = threading.local()


class Stream:
    """The work of one GPU in the order of its requests."""

    def __init__(self, gpu: int) -> None:
        self.gpu = gpu
        self._waiting: list[Any] = []
        self.submitted = self.done = 0

    def submit(self, work: Any) -> None:
        with _lock:
            self.submitted += 1
            self._waiting.append(work)
            if not LATE[0]:
                self.run_work()

    def run_work(self, until: int | None = None) -> None:
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
    gpu = current()
    contexts.add(gpu)
    chosen = getattr(_thread, "streams", {}).get(gpu)
    if chosen is not None:
        return chosen
    if gpu not in _default:
        _default[gpu] = new_stream()
    return _default[gpu]


def choose_stream(chosen: Stream | None, gpu: int) -> Stream | None:
    """Make a stream this thread's on a GPU; return the previous one."""
    streams = _thread.__dict__.setdefault("streams", {})
    before = streams.pop(gpu, None)
    if chosen is not None:
        streams[gpu] = chosen
    return before


def wait_for_gpu(gpu: int) -> None:
    calls["deviceSynchronize"] += 1
    for each in [each for each in _streams if each.gpu == gpu]:
        each.run_work()


def current() -> int:
    return getattr(_thread, "gpu", 0)


def set_current(gpu: int) -> None:
    """Make a GPU current, like ``cudaSetDevice`` since CUDA 12: it creates a context."""
    _thread.gpu = gpu
    contexts.add(gpu)


def free_bytes(gpu: int) -> int:
    return min(BYTES, limits.get(gpu, BYTES)) - allocated[gpu] - cached[gpu]


def allocate(owner: object, gpu: int, nbytes: int) -> None:
    """Count bytes for as long as an object lives; afterwards they are in the pool."""
    contexts.add(gpu)
    allocated[gpu] += nbytes
    cached[gpu] = max(0, cached[gpu] - nbytes)
    weakref.finalize(owner, _release, gpu, nbytes).atexit = False


def _release(gpu: int, nbytes: int) -> None:
    allocated[gpu] -= nbytes
    cached[gpu] += nbytes
