"""CuPy's current GPU, on which all operators, copies and new arrays of a thread are."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import cupy

from devshim.contract.backend import Backend
from devshim.devices.device import CPU, Device


def current_device(device: Device) -> AbstractContextManager[Any]:
    """Return a context that makes a GPU the current one of this thread; for the host it does nothing."""
    return nullcontext() if device is CPU else cupy.cuda.Device(device.index)


class CupyScopes(Backend):
    """The mixin for scopes. They are CuPy's own ``with cupy.cuda.Device(1):``, which apply to one thread and nest."""

    def scope(self, device: Device) -> AbstractContextManager[object]:
        return current_device(device)
