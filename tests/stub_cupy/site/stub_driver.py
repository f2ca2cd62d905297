"""The driver's answers of the stub's GPUs, in place of NVML's and libcuda's, which are not there."""

from __future__ import annotations

from cupy import _machine

from devshim.devices import cuda, nvml


def install() -> None:
    """Have devshim ask the stub."""
    nvml.cuda_started = lambda: bool(_machine.contexts)
    cuda.count = lambda: _machine.CARDS
    cuda.has_context = _machine.contexts.__contains__
