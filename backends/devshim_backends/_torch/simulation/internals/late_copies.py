"""Copies that arrive as late as possible: ``ds.simulate(2, async_copies="late")``.

On a real GPU, ``x.to("cpu", non_blocking=True)`` returns while the GPU is still copying. So does a copy from pinned
memory, and a copy to another GPU. A program must wait before it reads the result, or before it overwrites the pinned
memory. Without the wait, it sometimes gets wrong values. Here a copy arrives only when something waits for it, so a
missing wait gives wrong values every time.

Requirements of this module:

* A copy from a GPU has the values at the time of the call, regardless of later changes of the tensor. A copy from
  pinned memory has the values at its arrival.
* The program waits for a GPU (`synchronize`), for a stream or an event in it, or with a copy that blocks or ``item()``
  for the current stream: that delivers the copies that were started there before. A query also does: ``query()``
  answers False once, and the copy arrives before the next answer.
* A copy to a GPU also arrives before work that uses its memory, if that is in the stream of the copy, or in a stream
  that has waited for it. A copy between two GPUs is in the current streams of both.
* The streams order copies with one another as well: before a copy arrives, those arrive that use the same memory, and
  that its stream has come after when it was started. A copy from pinned memory has what an earlier copy wrote there.
* Until then a new tensor has NaN, the largest integer or False in each element, and a target keeps its old values.
"""

from __future__ import annotations

import weakref
from threading import RLock
from typing import Any

import torch

from devshim_backends._torch.simulation.internals import stream_order
from devshim_backends._torch.simulation.internals.relabel import UNDER_WAY, to_host
from devshim_backends._torch.simulation.internals.stream_order import Clock, StreamKey, clock_of, current_stream
from devshim_backends._torch.simulation.memory import SIMULATED, adopt

_copy = torch._C.TensorBase.copy_
_LOCK = RLock()


class _Copy:
    """A copy that is under way.

    Attributes:
        number: Its position in the order of all copies.
        streams: The streams that contain it.
        clock: What is complete when it begins.
        gpu: The index of the target's GPU; -1 for the host.
        address: The address of the target's memory.
        source: The address of the memory with the values.
    """

    __slots__ = ("_geometry", "_target", "_values", "address", "clock", "gpu", "number", "source", "streams")

    def __init__(self, number: int, streams: tuple[StreamKey, ...], clock: Clock, target: Any, values: Any) -> None:
        self.number, self.streams, self.clock, self.gpu = number, streams, clock, target.get_device()
        self._values = values.detach()  # not the program's tensor, whose `data` may be replaced
        storage = target.untyped_storage()
        self.address, self.source = storage.data_ptr(), values.untyped_storage().data_ptr()
        if self.gpu < 0:
            self._target = target.detach()
        else:  # refer to the storage weakly: the program may drop it, and rely on the release of its memory
            self._target = weakref.ref(storage)
            self._geometry = target.dtype, target.storage_offset(), target.shape, target.stride()

    def is_before(self, clock: Clock) -> bool:
        """Return True if it is complete according to a clock."""
        return any(self.number <= clock.get(stream, 0) for stream in self.streams)

    def needs(self, earlier: _Copy) -> bool:
        """Return True if an earlier copy must arrive first: it uses the same memory, and was ordered before."""
        memory = self.address, self.source
        return (earlier.address in memory or earlier.source in memory) and earlier.is_before(self.clock)

    def is_dropped(self) -> bool:
        """Return True if the target no longer exists."""
        return self.gpu >= 0 and self._target() is None

    def arrive(self) -> None:
        """Write the values."""
        with torch.no_grad(), torch._C.DisableTorchFunction():
            target = self._target if self.gpu < 0 else self._target_on_gpu()
            if target is not None:
                _copy(target.data, self._values)  # `data` has its own version counter: arriving is not an operator

    def _target_on_gpu(self) -> Any:
        storage = self._target()
        if storage is None:
            return None
        dtype, offset, shape, strides = self._geometry
        target = torch.empty((0,), dtype=dtype, device=storage.device)
        return to_host(target.set_(storage, offset, shape, strides))


PENDING: list[_Copy] = []
"""The copies that are under way, in order."""
_started = 0


def are_late() -> bool:
    """Return True if copies that do not block arrive late."""
    return SIMULATED.async_copies == "late"


def number() -> int:
    """Return the number of the last copy that was started: an event that is recorded now waits for it."""
    return _started


# ---------------------------------------------------------------------- starting
def to_new_host(values: Any, gpu: int) -> Any:
    """Return a host tensor whose values are still being copied from a GPU; nothing else uses it."""
    target = _unset_like(values)
    to_existing_host(target, values, gpu)
    return target


def to_existing_host(target: Any, values: Any, gpu: int) -> None:
    """Begin to copy values from a GPU to a host tensor that exists."""
    _begin((current_stream(gpu),), target, values)


def to_new_gpu(values: Any, gpu: int, source: int, dtype: Any = None) -> Any:
    """Return a GPU's tensor to which a host tensor, or a copy of another GPU's tensor, is under way."""
    target = adopt(_unset_like(values, dtype), gpu)
    to_existing_gpu(target, values, source)
    return target


def to_existing_gpu(target: Any, values: Any, source: int) -> None:
    """Begin to copy a host tensor, or a copy of another GPU's tensor, to a GPU's tensor that exists."""
    here = current_stream(target.get_device())
    if source < 0:
        _begin((here,), target, values)
        return
    there = current_stream(source)  # PyTorch lets both current streams wait for each other, and then for the copy
    stream_order.wait(here, clock_of(there, _started))
    stream_order.wait(there, clock_of(here, _started))
    _begin((here, there), target, values)


def _unset_like(values: Any, dtype: Any = None) -> Any:
    target = torch.empty_like(values, dtype=dtype, device="cpu")
    if target.is_floating_point() or target.is_complex():
        return target.fill_(float("nan"))
    return target.fill_(False if target.dtype is torch.bool else torch.iinfo(target.dtype).max)


def _begin(streams: tuple[StreamKey, ...], target: Any, values: Any) -> None:
    global _started
    with _LOCK:
        clock = stream_order.merge(clock_of(stream, _started) for stream in streams)
        _started += 1
        PENDING[:] = [each for each in PENDING if not each.is_dropped()]
        PENDING.append(_Copy(_started, streams, clock, target, values))
        _list_addresses()


def _list_addresses() -> None:
    UNDER_WAY.clear()
    UNDER_WAY.update((each.address, _use) for each in PENDING if each.gpu >= 0)


# ---------------------------------------------------------------------- arriving
def finish(gpu: int | None = None) -> bool:
    """Deliver the copies of a GPU (None: of all); return True if there were any."""
    if not PENDING:
        return False
    clock = {} if gpu is None else stream_order.clock_of_gpu(gpu)
    return _deliver([e for e in PENDING if gpu is None or e.is_before(clock) or any(s[0] == gpu for s in e.streams)])


def finish_stream(stream: StreamKey) -> bool:
    """Deliver the copies in a stream, and those that it has waited for; return True if there were any."""
    return bool(PENDING) and finish_clock(clock_of(stream))


def finish_current(gpu: int) -> bool:
    """Deliver the copies in a GPU's current stream, as a copy that blocks does; return True if there were any."""
    return bool(PENDING) and finish_clock(clock_of(current_stream(gpu)))


def finish_clock(clock: Clock) -> bool:
    """Deliver the copies that are complete according to a clock; return True if there were any."""
    return _deliver([each for each in PENDING if each.is_before(clock)])


def _use(tensor: Any) -> None:
    """Deliver the copies to a GPU's memory that is about to be used, if the current stream may rely on them."""
    address, clock = tensor.untyped_storage().data_ptr(), clock_of(current_stream(tensor.get_device()))
    _deliver([each for each in PENDING if each.address == address and each.gpu >= 0 and each.is_before(clock)])


def _deliver(copies: list[_Copy]) -> bool:
    with _LOCK:
        chosen = {id(each) for each in copies}
        copies = []
        for each in reversed(PENDING):  # without those that another thread delivers
            if id(each) in chosen or any(later.needs(each) for later in copies):
                copies.append(each)
        copies.reverse()
        chosen = {id(each) for each in copies}
        PENDING[:] = [each for each in PENDING if id(each) not in chosen]
        _list_addresses()
    for each in copies:
        each.arrive()
    return bool(copies)
