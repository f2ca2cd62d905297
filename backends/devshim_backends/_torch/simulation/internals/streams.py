"""Streams and events of simulated GPUs: a call returns when its work is complete, so only late copies need a wait.

Programs can make more streams than a GPU's default stream (`stream_order`). All compute in the order of the program.
"""

from __future__ import annotations

import itertools
import time
from types import MappingProxyType
from typing import Any

import torch

from devshim_backends._torch.failures import EventsOfTwoDevicesError
from devshim_backends._torch.simulation.internals import late_copies, stream_order
from devshim_backends._torch.simulation.internals.patches import install
from devshim_backends._torch.simulation.internals.state import (
    NAME,
    TYPES,
    all_hidden,
    current,
    gpu_name,
    index_of,
    make_current,
    shown_device,
)
from devshim_backends._torch.simulation.internals.stream_order import Clock, StreamKey, clock_of
from devshim_backends._torch.simulation.internals.stream_order import current_stream as current_stream_key

RealStream: Any = torch.Stream
RealEvent: Any = torch.Event
TYPE = 20
"""The number of PrivateUse1 in ``c10::DeviceType``, which every rebuilt stream contains."""
CUDA_TYPE = 1
"""The number of CUDA there, which programs see while native names are on."""
_IDS = itertools.count(3, 4)
"""Numbers of new streams; 0 is a GPU's default stream."""


class _ReplacementType(type(RealStream)):  # type: ignore[misc]  # PyTorch is Any to the type checker
    """Metaclass of a replacement class, whose instances include every instance of the original class."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.__bases__[0])


def _key(stream: Any) -> StreamKey:
    return stream.device_index, stream.stream_id


def _wait_for_stream(self: Any) -> None:
    """Deliver the copies that are under way."""
    late_copies.finish_stream(_key(self))


def _wait_for_event(self: Any) -> None:
    """Deliver the copies that were started before `record`."""
    late_copies.finish_clock(self._recorded_after)


def _is_simulated(device: Any) -> bool:
    """Return True if a device-like argument, or None for the accelerator, means a simulated GPU."""
    return device is None or isinstance(device, int) or torch.device(device).type in TYPES


def _show_device_type(text: str) -> str:
    """Return the text of a stream or an event with the name of the device that programs see."""
    return text.replace(f"device_type={NAME}", f"device_type={shown_device(0).type}")


def shown_type() -> int:
    """Return the number of the device type that programs see."""
    return CUDA_TYPE if "cuda" in TYPES else TYPE


def make_stream(cls: Any, gpu: int, number: int | None = None) -> Any:
    """Return a stream of a GPU: a new one, or the one with a number."""
    number = next(_IDS) if number is None else number
    return RealStream.__new__(cls, stream_id=number, device_index=gpu, device_type=TYPE)


class Stream(RealStream, metaclass=_ReplacementType):  # type: ignore[misc]
    """A new stream, which a ``with`` block makes current with its GPU. PyTorch's class makes streams of GPU 0 only."""

    def __new__(cls, device: Any = None, priority: int = 0, **kwargs: Any) -> Any:
        if kwargs.get("device_type") in (TYPE, shown_type()) and "stream_id" in kwargs:
            return make_stream(cls, kwargs["device_index"], kwargs["stream_id"])
        if "stream_id" in kwargs or not _is_simulated(device):
            return RealStream(**kwargs) if device is None else RealStream(device, priority=priority, **kwargs)
        return make_stream(cls, index_of(device))

    @property
    def device_type(self) -> int:
        """The number of the type of the device in ``c10::DeviceType``."""
        return shown_type()

    @property
    def device(self) -> Any:
        """The GPU, as a `torch.device`."""
        return shown_device(self.device_index)

    def wait_stream(self, stream: Any) -> None:
        """Let the next work come after the work in another stream."""
        if late_copies.are_late():
            stream_order.wait(_key(self), clock_of(_key(stream), late_copies.number()))

    def wait_event(self, event: Any) -> None:
        """Let the next work come after an event."""
        event.wait(self)

    synchronize = _wait_for_stream

    def query(self) -> bool:
        """Return True if no copy was under way."""
        return not late_copies.finish_stream(_key(self))

    def record_event(self, event: Any = None) -> Any:
        """Record an event, by default a new one, and return it."""
        event = Event(enable_timing=True) if event is None else event
        event.record(self)
        return event

    def __enter__(self) -> Stream:
        self._before = make_current(self.device_index)
        self._stream_before = stream_order.set_current_stream(self.device_index, self.stream_id)
        return self

    def __exit__(self, *failure: object) -> None:
        stream_order.set_current_stream(self.device_index, self._stream_before)
        make_current(self._before)

    def __repr__(self) -> str:
        return _show_device_type(super().__repr__())


class Event(RealEvent, metaclass=_ReplacementType):  # type: ignore[misc]
    """A moment on a simulated GPU; the time between two events is the host's."""

    _recorded_at: float | None = None
    _recorded_after: Clock = MappingProxyType({})
    _is_timed: bool = False
    _gpu: int | None = None
    _named_gpu: int | None = None
    """The GPU of the event's streams by default; None is the current one."""
    _other_gpu = "Event device index {} does not match recording stream's device index {}."

    def __new__(cls, device: Any = None, *, enable_timing: bool = False, **kwargs: Any) -> Any:
        if not _is_simulated(device):
            return RealEvent(device, enable_timing=enable_timing, **kwargs)
        event = RealEvent.__new__(cls, torch.device(NAME, 0), enable_timing=enable_timing)
        event._is_timed = enable_timing
        event._gpu = None if device is None and all_hidden() else index_of(device)  # PyTorch reads it in `record`
        has_index = device is not None and (isinstance(device, int) or torch.device(device).index is not None)
        event._named_gpu = event._gpu if has_index else None
        return event

    @property
    def device(self) -> Any:
        """The GPU, as a `torch.device`."""
        return None if self._gpu is None else shown_device(self._gpu)

    def _key_of(self, stream: Any) -> StreamKey:
        """Return the key of a stream; None is the current one."""
        if stream is not None:
            return _key(stream)
        return current_stream_key(current() if self._named_gpu is None else self._named_gpu)

    def wait(self, stream: Any = None) -> None:
        """Let the next work in a stream, by default the current one, come after the event."""
        if late_copies.are_late():
            stream_order.wait(self._key_of(stream), self._recorded_after)

    synchronize = _wait_for_event

    def query(self) -> bool:
        """Return True if none of these copies was under way."""
        return not late_copies.finish_clock(self._recorded_after)

    def record(self, stream: Any = None) -> None:
        """Store the time, and which copies were started before in a stream, by default the current one.

        Raises:
            RuntimeError: The event was recorded on another GPU before.
        """
        if stream is None and self._gpu is None:
            index_of()  # raises the error for hidden GPUs
        key = self._key_of(stream)
        if self._recorded_at is not None and self._gpu != key[0]:
            raise RuntimeError(self._other_gpu.format(self._gpu, key[0]))
        self._gpu = key[0]
        if late_copies.are_late():
            self._recorded_after = clock_of(key, late_copies.number())
        self._recorded_at = time.perf_counter()

    def elapsed_time(self, end_event: Any) -> float:
        """Return milliseconds from this event to another."""
        if not (self._is_timed and end_event._is_timed):
            msg = "Both events must be created with argument 'enable_timing=True'."
            raise ValueError(msg)
        if self._recorded_at is None or end_event._recorded_at is None or self._gpu is None:
            msg = "Both events must be recorded before calculating elapsed time."
            raise ValueError(msg)
        if self._gpu != end_event._gpu:
            gpus = gpu_name(self._gpu), gpu_name(end_event._gpu)
            real = "CUDA error: invalid resource handle\n" if "cuda" in TYPES else ""
            msg = f"{real}one event is of {gpus[0]} and the other of {gpus[1]}"
            raise EventsOfTwoDevicesError(msg, "record both events in streams of one GPU")
        return float(end_event._recorded_at - self._recorded_at) * 1e3

    def __repr__(self) -> str:
        return _show_device_type(super().__repr__())


def current_stream(device: Any = None) -> Any:
    """Return this thread's current stream of a GPU."""
    gpu, number = current_stream_key(index_of(device))
    return make_stream(Stream, gpu, number)


def default_stream(device: Any = None) -> Any:
    """Return a GPU's default stream."""
    return make_stream(Stream, index_of(device), 0)


def patch() -> None:
    """Install both classes: PyTorch's own know only GPU 0, and cannot wait for an event or measure time."""
    install(torch, "Stream", Stream)
    install(torch, "Event", Event)
