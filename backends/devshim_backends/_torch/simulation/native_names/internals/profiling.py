"""PyTorch's profiler: it records the work of the host's processor, which computes for simulated GPUs.

If a program also requested CUDA's events, C++ would print an error for every operator.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from torch.autograd import profiler

from devshim.simulation.patching import Patches

_TEXT = "simulated GPUs compute on the host, so the profiler records times of the CPU, and none of CUDA"


def _without_cuda(real: Callable[..., None]) -> Callable[..., None]:
    """Return a replacement for the profiler's initializer."""

    @functools.wraps(real)
    def initialize(self: Any, enabled: bool = True, **options: Any) -> None:
        if options.pop("use_cuda", False) or options.get("use_device") == "cuda":
            warnings.warn(_TEXT, UserWarning, stacklevel=3)
            options.update(use_device=None, use_cpu=True)
        real(self, enabled, **options)

    return initialize


def install(patches: Patches) -> None:
    """Install the replacement."""
    patches.replace(profiler.profile, "__init__", _without_cuda(profiler.profile.__init__))
