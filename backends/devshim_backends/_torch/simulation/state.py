"""How many cards are shown, which is current in this thread, and which one a device-like argument names."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

from devshim.errors import SimulationError

NAME = "sim"
"""The type of a simulated card's ``torch.device``."""


class _Shown:
    """What is switched on now.

    Attributes:
        count: How many cards.
        limit: Bytes of each, or None.
        on_leaving: Called when for the first time a thread makes another card than the first its current one.
    """

    __slots__ = ("count", "limit", "on_leaving")

    def __init__(self) -> None:
        self.count = 0
        self.limit: int | None = None
        self.on_leaving: Callable[[], None] | None = None


SHOWN = _Shown()


class _Current(threading.local):
    """A thread's own current card, as CUDA's is."""

    index = 0


CURRENT = _Current()


def current() -> int:
    """Return the index of this thread's current card."""
    index = CURRENT.index
    return index if index < SHOWN.count else 0  # it was set when there were more


def make_current(index: int) -> int:
    """Make a card this thread's current one, and return the one before; a negative index changes nothing."""
    before = current()
    if index >= 0:
        CURRENT.index = _named(index)
        if index and SHOWN.on_leaving is not None:
            told, SHOWN.on_leaving = SHOWN.on_leaving, None
            told()
    return before


def checked(index: int) -> int:
    """Return the index of a tensor's card if it is shown, or raise."""
    if 0 <= index < SHOWN.count:
        return index
    raise missing(index)


def shown(index: int) -> str:
    """Return what a card is called in an error; PyTorch's own name for it is ``sim:1``."""
    return f"gpu:{index} (simulated)"


def missing(index: int) -> SimulationError:
    """The error for a tensor whose card is not there any more; raises it where the line is known that took it away."""
    for card in _gone(index):
        card.require_shown()
    return absent(index)


def absent(index: int) -> SimulationError:
    """The error for a card that is named and is not there; a RuntimeError, as PyTorch's own is."""
    have = f"devshim simulates {SHOWN.count}" if SHOWN.count else "no GPUs are simulated now"
    for card in _gone(index):  # PyTorch names it for what it makes beside a tensor, as in x[0] = 5.0
        have = f"gpu:{index} was taken away at {card.taken}, and {have}"
    return SimulationError(
        f"{shown(index)} is not there (invalid device ordinal): {have}",
        f"ds.simulate(gpus={index + 1}) shows it; what was on it can be used again then",
    )


def _gone(index: int) -> list[Any]:
    """The card of an index, where it was taken away while something was on it."""
    from devshim_backends._torch.simulation.memory import CARDS

    return [card for card in CARDS if card.device.index == index and card.taken is not None]


_KNOWN: dict[Any, int] = {}
"""Arguments that name a card -> its index, or -1 for the current one: cheaper than to look into them."""


def index_of(device: Any = None) -> int:
    """Return the index of the card that an argument names: None or no index is the current one.

    Raises:
        SimulationError: The card is not there.
        ValueError: It is a device of another kind.
    """
    if device is None:
        return _named(current())
    index = _KNOWN.get(device)
    if index is None:
        index = _KNOWN[device] = _read(device)
    if index < 0:
        index = current()
    return _named(index)


def _named(index: int) -> int:
    if index < SHOWN.count:
        return index
    raise absent(index)


def _read(device: Any) -> int:
    if isinstance(device, int):
        return device
    named = torch.device(device)
    if named.type != NAME:
        raise ValueError(f"Expected a {NAME} device, but got: {named}")
    return -1 if named.index is None else int(named.index)
