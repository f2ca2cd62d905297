"""Process groups that the program has destroyed, but whose threads may still be freeing a finished collective call.

A group of gloo ends in two ways. If Python frees it, it waits for its threads without Python's lock. But if C++ frees
it, for example with a `DistributedDataParallel` model, it waits for them with that lock. A thread that needs the lock,
in order to free a tensor's Python object, then waits forever (2.13; https://github.com/pytorch/pytorch/issues/56297).
NCCL has no such threads. Therefore a reference to each group remains here until its threads are idle.
"""

from __future__ import annotations

import ctypes
import functools
from collections import deque
from collections.abc import Callable
from threading import Lock
from time import monotonic
from typing import Any

from torch import distributed

_SECONDS = 1.0
"""A thread frees a finished call within milliseconds."""
_DESTROYED: deque[tuple[float, Any]] = deque()
"""The groups, each with the time from which it may be freed; the oldest is the first."""
_LOCK = Lock()
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_DESTROYED))  # never freed: the exit is too early for the last groups


def keeping(real: Callable[..., None], uses_nccl: Callable[[Any], bool]) -> Callable[..., None]:
    """Return a replacement for `destroy_process_group`, which keeps the groups that NCCL would serve for a while."""

    @functools.wraps(real)
    def destroy(group: Any = None) -> None:
        existing = list(distributed.distributed_c10d._world.pg_map)
        is_all = group is None or group == distributed.group.WORLD
        ending = [each for each in existing if (is_all or each == group) and uses_nccl(each)]
        real(group)
        free_old()
        with _LOCK:
            _DESTROYED.extend((monotonic() + _SECONDS, each) for each in ending)

    return destroy


def free_old() -> None:
    """Free the groups whose threads are idle."""
    ready = []
    with _LOCK:
        while _DESTROYED and _DESTROYED[0][0] <= monotonic():
            ready.append(_DESTROYED.popleft())
