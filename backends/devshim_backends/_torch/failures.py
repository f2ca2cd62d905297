"""The error of a full device: devshim's and PyTorch's in one, on real and simulated GPUs alike."""

from __future__ import annotations

import torch

from devshim.errors import OutOfMemoryError, joined

__all__ = ["FullDeviceError"]


@joined
class FullDeviceError(OutOfMemoryError, torch.OutOfMemoryError):  # type: ignore[misc]  # PyTorch is Any
    """A device is full; ``except torch.OutOfMemoryError`` catches it, too."""
