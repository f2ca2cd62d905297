"""Translation of devices: ``cuda:1``, which a program writes and sees, and ``sim:1``, which the tensors are on."""

from __future__ import annotations

from typing import Any

import torch

from devshim_backends._torch.simulation.internals.state import NAME, index_of

CARDS = 64
"""The largest number of simulated GPUs."""
_device = torch.device
SIMULATED = tuple(_device(NAME, index) for index in range(CARDS))
"""The device of each simulated GPU's tensors."""
SHOWN = {_device(NAME, index): _device("cuda", index) for index in range(CARDS)}
"""The device of a simulated GPU -> the device that a program sees."""


def to_simulated(value: Any) -> Any:
    """Return the simulated GPU's device if an argument names a CUDA card, and otherwise the argument.

    Raises:
        SimulationError: The card does not exist.
        RuntimeError: The text is not a device; PyTorch's own error.
    """
    kind = type(value)
    if kind is _device:
        return SIMULATED[index_of(value)] if value.type == "cuda" else value
    if kind is str and value.startswith("cuda"):
        return SIMULATED[index_of(_device(value))]
    return value


def with_index(value: Any) -> Any:
    """Return ``cuda:1`` if an argument is ``cuda`` and card 1 is the current one, and otherwise the argument."""
    if value == "cuda" or (type(value) is _device and value.type == "cuda" and value.index is None):
        return _device("cuda", index_of(None))
    return value
