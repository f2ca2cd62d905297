"""PyTorch's profilers: they record the work of the host's processor, which computes for simulated GPUs.

If a program also requested CUDA's events, C++ would print an error for every operator. `emit_nvtx` marks operators for
NVIDIA's profilers, which have nothing to record here, so it does nothing.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import profiler

from devshim.simulation.patching import Patches

_TEXT = "simulated GPUs compute on the host, so the profiler records times of the CPU, and none of CUDA"


def _wrap_profiler_init(real: Callable[..., None]) -> Callable[..., None]:
    """Return a replacement for the profiler's initializer."""

    @functools.wraps(real)
    def initialize(self: Any, enabled: bool = True, **options: Any) -> None:
        if options.pop("use_cuda", False) or options.get("use_device") == "cuda":
            warnings.warn(_TEXT, UserWarning, stacklevel=3)
            options.update(use_device=None, use_cpu=True)
        real(self, enabled, **options)

    return initialize


def _enter_nvtx(self: Any) -> Any:
    """Replace ``emit_nvtx.__enter__``, with its check that it is not entered twice."""
    if self.enabled:
        if self.entered:
            msg = "NVTX annotation context manager is not reentrant"
            raise RuntimeError(msg)
        self.entered = True
    return self if self.enabled else None


def _exit_nvtx(self: Any, *failure: object) -> None:
    """Replace ``emit_nvtx.__exit__``."""


def _wrap_activities(real: Callable[[], set[Any]]) -> Callable[[], set[Any]]:
    """Return a replacement for `torch.profiler.supported_activities`, which a build for CUDA answers with CUDA."""
    activity = profiler.ProfilerActivity
    return lambda: {*real(), activity.CUDA} - {activity.PrivateUse1}


def install(patches: Patches) -> None:
    """Install the replacements."""
    patches.replace(profiler.profile, "__init__", _wrap_profiler_init(profiler.profile.__init__))
    patches.replace(profiler.emit_nvtx, "__enter__", _enter_nvtx)
    patches.replace(profiler.emit_nvtx, "__exit__", _exit_nvtx)
    # For programs alone: in its own module, the function decides what a profiler without arguments records.
    patches.replace(torch.profiler, "supported_activities", _wrap_activities(torch.profiler.supported_activities))
