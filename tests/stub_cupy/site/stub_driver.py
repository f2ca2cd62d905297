"""The driver's answers of the stub's GPUs, in place of NVML's and libcuda's, which are not there."""

from __future__ import annotations

from cupy import _machine

from devshim import _cuda, _nvml


def install() -> None:
    """Have devshim ask the stub."""
    _nvml.cuda_started = lambda: bool(_machine.contexts)
    _cuda.count = lambda: _machine.CARDS
    _cuda.has_context = _machine.contexts.__contains__
