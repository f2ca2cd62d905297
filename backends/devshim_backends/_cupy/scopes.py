"""CuPy's current GPU: every operator, copy and new array is on it, in the thread that chose it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import cupy

from devshim.contract.backend import Backend
from devshim.devices.device import CPU, Device


def on_card(device: Device) -> AbstractContextManager[Any]:
    """Return a context in which a GPU is this thread's current one; on the host nothing."""
    return nullcontext() if device is CPU else cupy.cuda.Device(device.index)


class CupyScopes(Backend):
    """The mixin for scopes: CuPy's own ``with cupy.cuda.Device(1):``, which holds for one thread and nests."""

    def scope(self, device: Device) -> AbstractContextManager[object]:
        return on_card(device)
