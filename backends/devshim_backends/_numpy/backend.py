"""NumPy's rooms put together."""

from __future__ import annotations

from devshim.devices.device import Device

from .creation import NumpyCreation
from .devices import NumpyDevices
from .draws import NumpyDraws
from .gaps import GAPS, LIMITS
from .hidden import NumpyHidden
from .interop import NumpyInterop
from .lines import LINES
from .runtime import NumpyRuntime
from .scopes import NumpyScopes
from .several import NumpySeveral


class NumpyBackend(
    NumpyDevices, NumpyCreation, NumpyDraws, NumpyScopes, NumpyRuntime, NumpyHidden, NumpyInterop, NumpySeveral
):
    """NumPy: the host, and simulated cards for those who have nothing else installed."""

    name = "numpy"
    title = "NumPy"
    gaps = GAPS
    limits = LIMITS
    lines = LINES

    def native_text(self, device: Device) -> str:
        return f'"{device}"'
