"""``torch.cuda.Stream`` and ``torch.cuda.Event``: work is complete when a call returns.

A program can create any number of streams and make them current. All of them compute in the order of the program; with
``async_copies="late"``, copies arrive by the rules of streams (see `late_copies`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from devshim.errors import UnsupportedError
from devshim.simulation.patching import Patches
from devshim_backends._torch.capabilities import NOT_SIMULATED, SHARED_EVENT
from devshim_backends._torch.simulation.internals import streams as simulated
from devshim_backends._torch.simulation.internals.state import index_of, make_current
from devshim_backends._torch.simulation.internals.stream_order import current_stream, set_current_stream
from devshim_backends._torch.simulation.native_names.internals import sync_debug

_PRIORITIES: dict[int, int] = {}
"""The number of a stream -> its priority, if it has one: PyTorch makes an object from the number."""
_HIGHEST = -3
"""The highest priority: PyTorch has four, and current cards have at least as many."""


class _ExactInstances(type(simulated.Stream)):  # type: ignore[misc]  # PyTorch is Any to the type checker
    """Metaclass that undoes the wider `isinstance` of the extended class: other streams are not instances."""

    def __instancecheck__(cls, instance: object) -> bool:
        return type.__instancecheck__(cls, instance)


def _report_and_wait(self: Any) -> None:
    """Deliver the copies that are under way; the mode of `sync_debug` reports that the host waits."""
    sync_debug.report()
    simulated.Stream.synchronize(self)


class _CudaStreamBase(simulated.Stream, metaclass=_ExactInstances):  # PyTorch's name
    """Replacement for the class of C++ under `torch.cuda.Stream`."""


class Stream(_CudaStreamBase):
    """Replacement for `torch.cuda.Stream`."""

    def __new__(cls, device: Any = None, priority: int = 0, **kwargs: Any) -> Any:
        number = kwargs.get("stream_id")
        if number is None:
            index = index_of(torch.device("cuda", device) if isinstance(device, int) else device)
        else:
            index = kwargs["device_index"]
        stream = simulated.make_stream(cls, index, number)
        if priority > 0:
            msg = f"Expected cuda stream priority to be less than or equal to 0, got {priority}"
            raise RuntimeError(msg)
        if priority:
            _PRIORITIES[stream.stream_id] = max(priority, _HIGHEST)
        return stream

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """Return the lowest and the highest priority as the numbers of CUDA."""
        return 0, _HIGHEST

    @property
    def priority(self) -> int:
        """The priority; it has no effect."""
        return _PRIORITIES.get(self.stream_id, 0)

    @property
    def cuda_stream(self) -> int:
        """The number of the stream, where CUDA has an address."""
        return int(self.stream_id)

    synchronize = _report_and_wait

    def record_event(self, event: Any = None) -> Any:
        """Record an event, by default a new one, and return it."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and (self.stream_id, self.device_index) == (
            other.stream_id,
            other.device_index,
        )

    def __hash__(self) -> int:
        return hash((self.stream_id, self.device_index))

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"


class _CudaEventBase(simulated.Event, metaclass=_ExactInstances):  # PyTorch's name
    """Replacement for the class of C++ under `torch.cuda.Event`."""


class Event(_CudaEventBase):
    """Replacement for `torch.cuda.Event`."""

    _other_gpu = "Event device {} does not match recording stream's device {}."

    def __new__(
        cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
    ) -> Any:
        if interprocess:
            msg, _, instead = NOT_SIMULATED[SHARED_EVENT].partition(": ")
            raise UnsupportedError(msg, instead)
        event = simulated.Event.__new__(cls, enable_timing=enable_timing)
        event._gpu = event._named_gpu = None  # it belongs to the GPU of the stream in which it is first recorded
        return event

    @property
    def cuda_event(self) -> int:
        """A number that is not 0 once the event is recorded, where CUDA has an address."""
        return 0 if self._recorded_at is None else id(self)

    def __repr__(self) -> str:
        return f"<torch.cuda.Event {self.cuda_event:#x}>" if self.cuda_event else "<torch.cuda.Event uninitialized>"


class ExternalStream(Stream):
    """Replacement for `torch.cuda.ExternalStream`."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        msg = "a stream of another library is on a real GPU, and this machine has none"
        raise UnsupportedError(msg, "use a stream of PyTorch: torch.cuda.Stream()")


def _current_stream(index: int) -> tuple[int, int, int]:
    gpu = index_of(index)
    return current_stream(gpu)[1], gpu, simulated.CUDA_TYPE


def _default_stream(index: int) -> tuple[int, int, int]:
    return 0, index_of(index), simulated.CUDA_TYPE


def _set_stream(stream_id: int, device_index: int, device_type: int) -> None:
    make_current(device_index)
    set_current_stream(device_index, stream_id)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "_cuda_getCurrentStream": _current_stream,
    "_cuda_getDefaultStream": _default_stream,
    "_cuda_setStream": _set_stream,
    "_cuda_getCurrentRawStream": lambda index: _current_stream(index)[0],
}
"""Function of ``torch._C`` -> its counterpart for simulated GPUs."""


def install(patches: Patches) -> None:
    """Install the replacements."""
    for each in (Stream, Event, ExternalStream):
        each.__module__ = "torch.cuda.streams"
        patches.replace(torch.cuda, each.__name__, each)
        patches.replace(torch.cuda.streams, each.__name__, each)
    for base in (_CudaStreamBase, _CudaEventBase):
        base.__module__ = "torch._C"
        patches.replace(torch._C, base.__name__, base)
