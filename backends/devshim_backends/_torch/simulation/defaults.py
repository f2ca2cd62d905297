"""What PyTorch chooses by the device where nothing is said, though the processor that computes is the host's.

An optimizer does all parameters at once (``foreach``) on accelerators, which rounds otherwise than one by one. Cards
that compute on the host take the host's way, so that training that moves between the two gives the same bits; who asks
for ``foreach=True`` gets it.
"""

from __future__ import annotations

import sys

import torch
from torch.utils._foreach_utils import _get_foreach_kernels_supported_devices

from devshim_backends._torch.simulation.patches import put
from devshim_backends._torch.simulation.state import NAME

_OPTIMIZERS = sys.modules[torch.optim.Optimizer.__module__]  # torch.optim takes its name for this module back


def foreach_devices() -> list[str]:
    """Return the kinds of devices on which optimizers do all parameters at once by themselves."""
    return [name for name in _get_foreach_kernels_supported_devices() if name != NAME]


def patch() -> None:
    """Replace what optimizers ask; gradient clipping asks elsewhere, and refuses ``foreach`` where the answer is no."""
    put(_OPTIMIZERS, "_get_foreach_kernels_supported_devices", foreach_devices)
