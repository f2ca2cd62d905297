"""The NumPy adapter's class, which combines the mixins of the other modules."""

from __future__ import annotations

from devshim.devices.device import Device
from devshim_backends._numpy.capabilities import GAPS, LIMITS
from devshim_backends._numpy.collectives import NumpyCollectives
from devshim_backends._numpy.dlpack import NumpyDlpack
from devshim_backends._numpy.namespace import NumpyNamespace
from devshim_backends._numpy.random import NumpyRandom
from devshim_backends._numpy.snippets import SNIPPETS
from devshim_backends._numpy.transfers.implicit import NumpyTransferHooks

from .creation import NumpyCreation
from .devices import NumpyDevices
from .runtime import NumpyRuntime
from .scopes import NumpyScopes


class NumpyBackend(
    NumpyDevices,
    NumpyCreation,
    NumpyRandom,
    NumpyScopes,
    NumpyRuntime,
    NumpyTransferHooks,
    NumpyDlpack,
    NumpyCollectives,
    NumpyNamespace,
):
    """The adapter for NumPy: the host, and simulated GPUs for users who have no other framework installed."""

    name = "numpy"
    title = "NumPy"
    gaps = GAPS
    limits = LIMITS
    snippets = SNIPPETS

    def native_text(self, device: Device) -> str:
        return f'"{device}"'
