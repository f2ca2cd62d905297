"""Choices that PyTorch makes by the kind of device, made here for the processor that really computes: the host's.

On accelerators, an optimizer updates all parameters together (``foreach``), which rounds differently from updates one
by one. Simulated GPUs compute on the host and use the host's method, so that training that moves between the two gives
the same bits. A program that asks for ``foreach=True`` gets it.
"""

from __future__ import annotations

import sys

import torch
from torch.utils._foreach_utils import _get_foreach_kernels_supported_devices

from devshim_backends._torch.simulation.internals.patches import install
from devshim_backends._torch.simulation.internals.state import TYPES

_OPTIMIZERS = sys.modules[torch.optim.Optimizer.__module__]  # torch.optim deletes its own attribute for this module


def foreach_devices() -> list[str]:
    """Return the kinds of devices on which optimizers update all parameters together by default."""
    return [name for name in _get_foreach_kernels_supported_devices() if name not in TYPES]


def patch() -> None:
    """Patch the query of optimizers; gradient clipping has its own, and refuses ``foreach`` if that is False."""
    install(_OPTIMIZERS, "_get_foreach_kernels_supported_devices", foreach_devices)
