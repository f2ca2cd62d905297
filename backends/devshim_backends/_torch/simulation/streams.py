"""Streams and events of simulated GPUs: a call returns when its work is complete, so only late copies need a wait.

A GPU has one stream, so work on the GPU is in order, and its waits for streams and events return at once.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from devshim_backends._torch.simulation import late_copies
from devshim_backends._torch.simulation.patches import install
from devshim_backends._torch.simulation.state import NAME, TYPES, current, index_of, make_current, shown_device

RealStream: Any = torch.Stream
RealEvent: Any = torch.Event
TYPE = 20
"""The number of PrivateUse1 in ``c10::DeviceType``, which every rebuilt stream contains."""


class _ReplacementType(type(RealStream)):  # type: ignore[misc]  # PyTorch is Any to the type checker
    """Metaclass of a replacement class, of which every instance of the original class is an instance too."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.__bases__[0])


def _return_at_once(self: Any, other: Any = None) -> None:
    """Return at once."""


def _wait_for_stream(self: Any) -> None:
    """Deliver the copies to the host that are under way."""
    late_copies.finish(self.device_index)


def _wait_for_event(self: Any) -> None:
    """Deliver the copies to the host that were started before `record`."""
    late_copies.finish(until=self._recorded_after)


def _is_simulated(device: Any) -> bool:
    """Return True if a device-like argument, or None for the accelerator, means a simulated GPU."""
    return device is None or isinstance(device, int) or torch.device(device).type in TYPES


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

    wait_event = wait_stream = _return_at_once
    synchronize = _wait_for_stream

    def query(self) -> bool:
        """Return True if no copy to the host was under way."""
        return not late_copies.finish(self.device_index)

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


class Event(RealEvent, metaclass=_ReplacementType):  # type: ignore[misc]
    """A moment on a simulated GPU; the time between two events is the host's."""

    _recorded_at: float | None = None
    _recorded_after: int = 0
    _is_timed: bool = False

    def __new__(cls, device: Any = None, *, enable_timing: bool = False, **kwargs: Any) -> Any:
        if not _is_simulated(device):
            return RealEvent(device, enable_timing=enable_timing, **kwargs)
        event = RealEvent.__new__(cls, torch.device(NAME, 0), enable_timing=enable_timing)
        event._is_timed = enable_timing
        return event

    wait = _return_at_once
    synchronize = _wait_for_event

    def query(self) -> bool:
        """Return True if none of these copies was under way."""
        return not late_copies.finish(until=self._recorded_after)

    def record(self, stream: Any = None) -> None:
        """Store the time, and which copies were started before."""
        self._recorded_after = late_copies.number()
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


def current_stream(device: Any = None) -> Any:
    """Return a GPU's only stream."""
    return Stream(current() if device is None else device)


def patch() -> None:
    """Install both classes: PyTorch's own know only GPU 0, and cannot wait for an event or measure time."""
    install(torch, "Stream", Stream)
    install(torch, "Event", Event)
