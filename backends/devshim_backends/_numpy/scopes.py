"""NumPy's device scope, which does nothing, because NumPy's operators follow their arguments."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from devshim.contract.backend import Backend
from devshim.devices.device import Device


class NumpyScopes(Backend):
    """The mixin for scopes: a context that does nothing (gap ``op_scope``)."""

    def scope(self, device: Device) -> AbstractContextManager[object]:
        return nullcontext()
