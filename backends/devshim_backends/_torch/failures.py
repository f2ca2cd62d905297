"""The error for a full device, which is devshim's error and PyTorch's at once, for real and simulated GPUs."""

from __future__ import annotations

import torch

from devshim.errors import OutOfMemoryError, joined

__all__ = ["FullDeviceError"]


@joined
class FullDeviceError(OutOfMemoryError, torch.OutOfMemoryError):  # type: ignore[misc]  # PyTorch is Any
    """Error for a full device; ``except torch.OutOfMemoryError`` catches it too."""
