"""Copies to the host that arrive as late as they may: ``ds.simulate(2, async_copies="late")``.

``x.to("cpu", non_blocking=True)`` and ``host.copy_(x, non_blocking=True)`` return while a real GPU is still copying. A
program must wait before it reads the result, and without the wait it reads old memory, now and then. Here the result
arrives when the program waits, and not before, so a missing wait gives wrong values every time.

Requirements this module answers:

* A copy has the values that the GPU's tensor had at the call, whatever is done to the tensor afterwards.
* A wait for the GPU (`synchronize`, a copy that blocks, ``item()``), for its stream, or for an event recorded after the
  copy delivers it. So does a question: ``query()`` answers False once, and the copy arrives before the next answer.
* Until then a new tensor has NaN, the largest integer or False in each element, and a target keeps its old values.
"""

from __future__ import annotations

from threading import RLock
from typing import Any

import torch

from devshim_backends._torch.simulation.memory import SIMULATED

_copy = torch._C.TensorBase.copy_
_LOCK = RLock()
PENDING: list[tuple[int, int, Any, Any]] = []
"""For each copy under way: its number, the GPU's index, the target, and the values that will arrive."""
_started = 0


def are_late() -> bool:
    """Return True if copies to the host that do not block arrive late."""
    return SIMULATED.async_copies == "late"


def number() -> int:
    """Return the number of the last copy that was started: an event that is recorded now waits for it."""
    return _started


def new(values: Any, gpu: int) -> Any:
    """Return a host tensor to which values are under way; they are not used otherwise."""
    target = torch.empty_like(values)
    if values.is_floating_point() or values.is_complex():
        target.fill_(float("nan"))
    else:
        target.fill_(False if values.dtype is torch.bool else torch.iinfo(values.dtype).max)
    begin(target, values, gpu)
    return target


def begin(target: Any, values: Any, gpu: int) -> None:
    """Begin to copy values to a host tensor that exists."""
    global _started
    with _LOCK:
        _started += 1
        PENDING.append((_started, gpu, target, values))


def finish(gpu: int | None = None, until: int | None = None) -> bool:
    """Deliver the copies of a GPU (None: of all) that were started up to a number; return True if there were any."""
    with _LOCK:
        done = [each for each in PENDING if gpu in (None, each[1]) and (until is None or each[0] <= until)]
        numbers = {each[0] for each in done}
        PENDING[:] = [each for each in PENDING if each[0] not in numbers]
    for _, _, target, values in done:
        with torch.no_grad():
            _copy(target.data, values)  # `data` has its own version counter: arriving is no operator
    return bool(done)
