"""The default device inside a ``with`` block, for one thread (1.9) or one context (2.0).

MXNet's device objects are their own scopes, and store on the object what to restore: an object that is entered twice
restores the wrong device. Every scope here is therefore a new object.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import mxnet as mx

from devshim.devices.device import CPU
from devshim.errors import messages
from devshim_backends._mxnet.internals.native import IS_2
from devshim_backends._mxnet.models.internals import recompiling
from devshim_backends._mxnet.simulation import hooks
from devshim_backends._mxnet.tensors import MxnetTensors
from devshim_backends._mxnet.tracing import OUTSIDE, device_of_block, is_deferred, is_symbolic, may_be_compiling

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from devshim.devices.device import Device


_NO_SCOPE: AbstractContextManager[object] = nullcontext()
_get_default: Callable[[], Any] = mx.device.current_device if IS_2 else mx.context.current_context


class MxnetScopes(MxnetTensors):
    """The mixin for scopes."""

    def __init__(self) -> None:
        super().__init__()
        recompiling.install(self)
        hooks.set_operators(*hooks.operators())  # `numpy_operators`, until GPUs are simulated

    # `compiling` stays False: Gluon runs a block's Python unchanged while it compiles, context variables included.

    def scope(self, device: Device) -> AbstractContextManager[object]:
        block = device_of_block(self.device_of) if may_be_compiling() else None
        if block is not None and block is not device:
            raise messages.tracing(self, "on", OUTSIDE)  # the compiled graph would ignore it
        if device is CPU:
            default = _get_default()
            if default.device_typeid == 1 and default.device_id == 0:
                return _NO_SCOPE
        native: AbstractContextManager[object] = self.to_native(device)
        return native

    def tracing(self) -> bool:
        return is_deferred() if IS_2 else is_symbolic()
