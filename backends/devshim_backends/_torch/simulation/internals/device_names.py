"""The names that PyTorch gives a custom device: ``torch.sim``, ``x.is_sim``, ``module.sim()`` and others.

PyTorch adds them once, when the device is registered, and never removes them. They exist only while GPUs are simulated,
so that a program finds PyTorch as it was before and afterwards. C++ keeps the name of the device.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from devshim_backends._torch.simulation.internals import patches
from devshim_backends._torch.simulation.internals.state import NAME

_OWNERS = (
    *(torch, torch.Tensor, torch.nn.Module, PackedSequence, torch.storage._StorageBase, torch.TypedStorage),
    *(torch.UntypedStorage, torch._C._autograd.DeviceType, torch._C._profiler.ProfilerActivity),
    torch.utils.backend_registration,
)
"""Modules and classes in which the registration adds or replaces names."""
_NAMES: list[tuple[Any, str, Any]] = []
"""Owner, name and value of each."""
_ABSENT = object()


def record(register: Callable[[], None]) -> None:
    """Call a function that registers the device, and take its names back until `patch`."""
    before = [dict(vars(owner)) for owner in _OWNERS]
    register()
    for owner, old in zip(_OWNERS, before, strict=True):
        for name, value in dict(vars(owner)).items():
            if old.get(name, _ABSENT) is not value:
                _NAMES.append((owner, name, value))
                if name in old:
                    setattr(owner, name, old[name])
                else:
                    delattr(owner, name)
    sys.modules.pop(f"torch.{NAME}", None)


def patch() -> None:
    """Install the names."""
    for owner, name, value in _NAMES:
        patches.install(owner, name, value)
    patches.install_item(sys.modules, f"torch.{NAME}", getattr(torch, NAME))
