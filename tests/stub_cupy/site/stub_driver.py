"""The driver's answers for the stub's GPUs, instead of NVML and libcuda, which do not exist here."""

from __future__ import annotations

from cupy import _machine

from devshim.devices import cuda, nvml


def install() -> None:
    """Make devshim query the stub."""
    nvml.cuda_started = lambda: bool(_machine.contexts)
    cuda.count = lambda: _machine.GPU_COUNT
    cuda.has_context = _machine.contexts.__contains__
