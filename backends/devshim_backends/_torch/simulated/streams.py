"""Streams and events of simulated cards: everything is done when the call returns, so there is nothing to wait for."""

from __future__ import annotations

import time
from typing import Any

import torch

from devshim_backends._torch.simulated.state import NAME, current, index_of, make_current


def _done(self: Any, other: Any = None) -> None:
    """Return at once."""


def _nothing_pending(self: Any) -> bool:
    """Return True: nothing is ever pending."""
    return True


class Stream(torch.Stream):  # type: ignore[misc]  # PyTorch is Any to the type checker
    """A card's only stream, with the card's index, where PyTorch's own class knows index 0 alone."""

    def __new__(cls, device: Any = None, priority: int = 0, **kwargs: Any) -> Any:
        made = super().__new__(cls, device=torch.device(NAME, 0))
        made._card = index_of(device)
        return made

    @property
    def device(self) -> Any:
        """The card, as a `torch.device`."""
        return torch.device(NAME, self._card)

    @property
    def device_index(self) -> int:
        """The card's index."""
        return int(self._card)

    synchronize = wait_event = wait_stream = _done
    query = _nothing_pending

    def record_event(self, event: Any = None) -> Any:
        """Record an event, a new one if none is given, and return it."""
        event = Event(enable_timing=True) if event is None else event
        event.record(self)
        return event

    def __enter__(self) -> Stream:
        self._before = make_current(self._card)
        return self

    def __exit__(self, *failure: object) -> None:
        make_current(self._before)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other._card == self._card

    def __hash__(self) -> int:
        return hash((NAME, self._card))

    def __repr__(self) -> str:
        return f"<torch.{NAME}.Stream device={self.device} (simulated)>"


class Event(torch.Event):  # type: ignore[misc]
    """A moment on a card; the time between two is the host's."""

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, **kwargs: Any) -> Any:
        made = super().__new__(cls, device=torch.device(NAME, 0))
        made._timed, made._at = enable_timing, None
        return made

    def record(self, stream: Any = None) -> None:
        """Note the time."""
        self._at = time.perf_counter()

    synchronize = wait = _done
    query = _nothing_pending

    def elapsed_time(self, end_event: Any) -> float:
        """Return milliseconds from this event to another."""
        if not (self._timed and end_event._timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._at is None or end_event._at is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return float(end_event._at - self._at) * 1e3

    def __repr__(self) -> str:
        return f"<torch.{NAME}.Event {'recorded' if self._at is not None else 'not recorded'} (simulated)>"


def current_stream(device: Any = None) -> Stream:
    """Return a card's only stream."""
    found: Stream = Stream(current() if device is None else device)
    return found
