"""How many GPUs are simulated, which one is current in this thread, and which one a device-like argument names."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

from devshim.errors import SimulationError

NAME = "sim"
"""The type of a simulated GPU's ``torch.device``."""


class _Shown:
    """The simulation as it is now.

    Attributes:
        count: The number of GPUs.
        limit: The bytes of each, or None.
        on_leaving: Called the first time that a thread makes a GPU other than the first its current one.
    """

    __slots__ = ("count", "limit", "on_leaving")

    def __init__(self) -> None:
        self.count = 0
        self.limit: int | None = None
        self.on_leaving: Callable[[], None] | None = None


SHOWN = _Shown()


class _Current(threading.local):
    """A thread's own current GPU, as in CUDA."""

    index = 0


CURRENT = _Current()


def current() -> int:
    """Return the index of this thread's current GPU."""
    index = CURRENT.index
    return index if index < SHOWN.count else 0  # it was set while there were more GPUs


def make_current(index: int) -> int:
    """Make a GPU this thread's current one, and return the previous one; a negative index changes nothing."""
    before = current()
    if index >= 0:
        CURRENT.index = _named(index)
        if index and SHOWN.on_leaving is not None:
            told, SHOWN.on_leaving = SHOWN.on_leaving, None
            told()
    return before


def checked(index: int) -> int:
    """Return the index of a tensor's GPU if it is simulated; otherwise raise."""
    if 0 <= index < SHOWN.count:
        return index
    raise missing(index)


def shown(index: int) -> str:
    """Return the name of a GPU in an error message; PyTorch's own name for it is ``sim:1``."""
    return f"gpu:{index} (simulated)"


def missing(index: int) -> SimulationError:
    """Return the error for a tensor whose GPU was removed; raise it if the line that removed the GPU is known."""
    for card in _gone(index):
        card.require_shown()
    return absent(index)


def absent(index: int) -> SimulationError:
    """Return the error for a GPU that is named and does not exist; a RuntimeError, like PyTorch's own."""
    have = f"devshim simulates {SHOWN.count}" if SHOWN.count else "no GPUs are simulated now"
    for card in _gone(index):  # PyTorch names the device of tensors that it makes itself, as in x[0] = 5.0
        have = f"gpu:{index} was taken away at {card.taken}, and {have}"
    return SimulationError(
        f"{shown(index)} is not there (invalid device ordinal): {have}",
        f"ds.simulate(gpus={index + 1}) shows it; what was on it can be used again then",
    )


def _gone(index: int) -> list[Any]:
    """Return the GPU of an index in a list if it was removed while something was on it; otherwise an empty list."""
    from devshim_backends._torch.simulation.memory import SIMULATED

    return [card for card in SIMULATED if card.device.index == index and card.taken is not None]


_KNOWN: dict[Any, int] = {}
"""Argument that names a GPU -> its index, or -1 for the current one: faster than to inspect the argument."""


def index_of(device: Any = None) -> int:
    """Return the index of the GPU that an argument names: None, or no index, is the current one.

    Raises:
        SimulationError: The GPU does not exist.
        ValueError: The argument is a device of another kind.
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
