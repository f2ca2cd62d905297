"""The NumPy adapter's class, which combines the mixins of the modules beside this one."""

from __future__ import annotations

from devshim.devices.device import Device
from devshim_backends._numpy.capabilities import GAPS, LIMITS
from devshim_backends._numpy.collectives import NumpySeveral
from devshim_backends._numpy.dlpack import NumpyInterop
from devshim_backends._numpy.random import NumpyDraws
from devshim_backends._numpy.snippets import LINES
from devshim_backends._numpy.transfers.implicit import NumpyHidden

from .creation import NumpyCreation
from .devices import NumpyDevices
from .runtime import NumpyRuntime
from .scopes import NumpyScopes


class NumpyBackend(
    NumpyDevices, NumpyCreation, NumpyDraws, NumpyScopes, NumpyRuntime, NumpyHidden, NumpyInterop, NumpySeveral
):
    """The adapter for NumPy: the host, and simulated GPUs for users who have no other framework installed."""

    name = "numpy"
    title = "NumPy"
    gaps = GAPS
    limits = LIMITS
    lines = LINES

    def native_text(self, device: Device) -> str:
        return f'"{device}"'
