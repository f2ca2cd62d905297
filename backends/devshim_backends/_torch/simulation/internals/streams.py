"""Streams and events of simulated GPUs: a call returns when its work is complete, so only late copies need a wait.

A GPU has one stream, so work on the GPU is in order; with native names, programs can make more (`stream_order`).
"""

from __future__ import annotations

import time
from types import MappingProxyType
from typing import Any

import torch

from devshim_backends._torch.simulation.internals import late_copies, stream_order
from devshim_backends._torch.simulation.internals.patches import install
from devshim_backends._torch.simulation.internals.state import (
    NAME,
    TYPES,
    current,
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


class Stream(RealStream, metaclass=_ReplacementType):  # type: ignore[misc]
    """A GPU's only stream; a ``with`` block makes its GPU current. PyTorch's class makes streams of GPU 0 only."""

    def __new__(cls, device: Any = None, priority: int = 0, **kwargs: Any) -> Any:
        if "stream_id" in kwargs or not _is_simulated(device):
            return RealStream(**kwargs) if device is None else RealStream(device, priority=priority, **kwargs)
        return RealStream.__new__(cls, stream_id=0, device_index=index_of(device), device_type=TYPE)

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
        return self

    def __exit__(self, *failure: object) -> None:
        make_current(self._before)

    def __repr__(self) -> str:
        return _show_device_type(super().__repr__())


class Event(RealEvent, metaclass=_ReplacementType):  # type: ignore[misc]
    """A moment on a simulated GPU; the time between two events is the host's."""

    _recorded_at: float | None = None
    _recorded_after: Clock = MappingProxyType({})
    _is_timed: bool = False
    _gpu: int | None = None

    def __new__(cls, device: Any = None, *, enable_timing: bool = False, **kwargs: Any) -> Any:
        if not _is_simulated(device):
            return RealEvent(device, enable_timing=enable_timing, **kwargs)
        event = RealEvent.__new__(cls, torch.device(NAME, 0), enable_timing=enable_timing)
        event._is_timed, event._gpu = enable_timing, index_of(device)
        return event

    @property
    def device(self) -> Any:
        """The GPU, as a `torch.device`."""
        return None if self._gpu is None else shown_device(self._gpu)

    def wait(self, stream: Any = None) -> None:
        """Let the next work in a stream, by default the current one, come after the event."""
        if late_copies.are_late():
            gpu = current() if self._gpu is None else self._gpu
            stream_order.wait(current_stream_key(gpu) if stream is None else _key(stream), self._recorded_after)

    synchronize = _wait_for_event

    def query(self) -> bool:
        """Return True if none of these copies was under way."""
        return not late_copies.finish_clock(self._recorded_after)

    def record(self, stream: Any = None) -> None:
        """Store the time, and which copies were started before in a stream, by default the current one."""
        if self._gpu is None:
            self._gpu = current() if stream is None else stream.device_index
        if late_copies.are_late():
            key = current_stream_key(self._gpu) if stream is None else _key(stream)
            self._recorded_after = clock_of(key, late_copies.number())
        self._recorded_at = time.perf_counter()

    def elapsed_time(self, end_event: Any) -> float:
        """Return milliseconds from this event to another."""
        if not (self._is_timed and end_event._is_timed):
            msg = "Both events must be created with argument 'enable_timing=True'."
            raise ValueError(msg)
        if self._recorded_at is None or end_event._recorded_at is None:
            msg = "Both events must be recorded before calculating elapsed time."
            raise ValueError(msg)
        return float(end_event._recorded_at - self._recorded_at) * 1e3

    def __repr__(self) -> str:
        return _show_device_type(super().__repr__())


def current_stream(device: Any = None) -> Any:
    """Return a GPU's only stream."""
    return Stream(current() if device is None else device)


def patch() -> None:
    """Install both classes: PyTorch's own know only GPU 0, and cannot wait for an event or measure time."""
    install(torch, "Stream", Stream)
    install(torch, "Event", Event)
