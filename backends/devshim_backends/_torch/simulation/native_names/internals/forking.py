"""A forked process, which cannot use CUDA if its parent has used it: with native names, nor can it use simulated GPUs.

PyTorch notes the fork in C++ if CUDA was used before, also if that was `torch.cuda.is_available`, unless
``PYTORCH_NVML_BASED_CUDA_CHECK=1`` is set. In the forked process, CUDA's start then raises, and so does work on tensors
of the parent. The count of devices stays, and so does all work on the host: a worker of a `DataLoader` may return host
tensors.

Without native names, a forked process may use its copy of the simulated GPUs' memory.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from devshim.simulation.patching import Patches
from devshim_backends._torch.simulation.internals.state import SIMULATION, TYPES, return_gpus
from devshim_backends._torch.simulation.memory import SIMULATED

__all__ = ["forget", "install", "is_started", "note_nothing", "note_start", "note_use"]


class _State:
    """The state of this process.

    Attributes:
        watched: True once Python calls `_enter_child` in forked processes; it cannot stop that.
        used: True if the program has called a function that asks CUDA for anything.
        started: True if the program has called a function that starts PyTorch's own state of CUDA.
    """

    watched = used = started = False


class _Local(threading.local):
    """True in a thread that runs a function which a real card would keep until CUDA starts."""

    keeps = False


_LOCAL = _Local()


def install(patches: Patches) -> None:
    """Watch for forks."""
    if not _State.watched and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_enter_child)
        _State.watched = True


def forget() -> None:
    """Let forked processes use simulated GPUs again."""
    _State.used = _State.started = False
    return_gpus()


def note_use() -> None:
    """Note that the program has used CUDA."""
    _State.used = True


def note_start() -> None:
    """Note that the program has called a function that starts CUDA, except in `note_nothing`."""
    if not _LOCAL.keeps:
        _State.used = _State.started = True


@contextmanager
def note_nothing() -> Iterator[None]:
    """Note no start of CUDA in this context, in this thread."""
    before, _LOCAL.keeps = _LOCAL.keeps, True
    try:
        yield
    finally:
        _LOCAL.keeps = before


def is_started() -> bool:
    """Return True if the program has called such a function, or has put anything on a simulated GPU."""
    if not _State.started:
        _State.started = any(gpu.was_used() for gpu in SIMULATED)
    return _State.started


def _enter_child() -> None:
    """Take the GPUs away, in a forked process whose parent has used them."""
    if "cuda" in TYPES and SIMULATION.count and (_State.used or any(gpu.was_used() for gpu in SIMULATED)):
        SIMULATION.count, SIMULATION.count_of_parent = 0, SIMULATION.count
