"""Scopes on TensorFlow: `tf.device`, which is thread-local, nests, and is traced into a ``tf.function``.

Inside a ``tf.function`` the scope is recorded in each operator and applies wherever the function is called from. XLA
(``jit_compile=True``) compiles the whole function for one device and silently ignores scopes, so a scope is refused
there.

An argument of a ``tf.function`` has no device while the function is traced, because one trace serves calls from every
device. `following` colocates operators with that tensor: at each call, TensorFlow puts them on the device of the
argument (seen in 2.16 to 2.21).

AutoGraph, which reads a ``tf.function``'s source, replaces an error with its own ``StagingError`` unless the error is
marked (2.16 to 2.21: ``ag_pass_through`` in ``autograph/impl/api.py``). devshim's errors are marked, so catching
``ds.TracingError`` works. AutoGraph also rewrites all functions that a rewritten function calls. For devshim's code
this takes time and warns of Python that AutoGraph does not know, so AutoGraph is configured to skip devshim, except
`run`, which calls the user's function.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.core.framework.attr_value_pb2 import AttrValue
from tensorflow.python.autograph.core import config
from tensorflow.python.eager import context
from tensorflow.python.ops import control_flow_util

from devshim.contract.backend import Backend
from devshim.devices.device import CPU
from devshim.errors import DevshimError, messages

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from devshim.devices.device import Device

DevshimError.ag_pass_through = True  # type: ignore[attr-defined]
_ours = [config.DoNotConvert("devshim"), config.DoNotConvert("devshim_backends")]
config.CONVERSION_RULES = (config.Convert("devshim.runtime.scopes"), *_ours, *config.CONVERSION_RULES)


def in_xla() -> bool:
    """Return True if the calling code is being traced for XLA."""
    return not tf.executing_eagerly() and bool(
        control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())
    )


def refused_in_xla(backend: Backend) -> Exception:
    """Return the error that refuses a device's scope in a function that is being traced for XLA."""
    instead = (
        "XLA compiles a whole function for one device: enter ds.on outside the function, or leave out jit_compile=True"
    )
    return messages.tracing(backend, "on", instead)


@contextmanager
def following(x: Any) -> Iterator[None]:
    """Open the scope in which the operators of a ``tf.function`` run where a tensor of the function will be.

    Operators that get a device from a scope inside keep it, and those on variables run where the variable is.
    """
    if in_xla():  # XLA compiles the whole function for one device
        yield
        return
    graph = tf.compat.v1.get_default_graph()
    anchor = x if x.graph is graph else graph.capture(x)  # in a branch or a loop
    groups = AttrValue(list=AttrValue.ListValue(s=anchor.op.colocation_groups()))

    def colocate(op: Any) -> str:
        own = op.colocation_groups() == [f"loc:@{op.name}".encode()]
        inputs = any(each.dtype in (tf.resource, tf.variant) for each in op.inputs)
        if op.graph is graph and own and not op.device and not inputs and op.type != "Placeholder":
            op._set_attr("_class", groups)
        device: str = op.device
        return device

    with graph.colocate_with(None, ignore_existing=True), graph.device(colocate):  # the first ends outer scopes
        yield


NO_SCOPE: AbstractContextManager[object] = nullcontext()
_hosts: object = None
"""TensorFlow's list of devices, if it contains only the host; TensorFlow makes a new list when its devices change."""


def computes_on_host() -> bool:
    """Return True if the calling code is eager, in no scope of a device, and TensorFlow has no device but the host."""
    state = context.context()
    local, devices = state._thread_local_data, getattr(state, "_logical_devices", None)  # missing before it starts
    if not local.is_eager or local.device_name or devices is None:
        return False
    return devices is _hosts or _are_hosts(devices)


def has_started_with_host_alone() -> bool:
    """Return True if TensorFlow has started its devices, and has no device but the host."""
    devices = getattr(context.context(), "_logical_devices", None)
    return devices is not None and (devices is _hosts or _are_hosts(devices))


def _are_hosts(devices: list[Any]) -> bool:
    global _hosts
    if len(devices) != 1 or devices[0].device_type != "CPU":
        return False
    _hosts = devices
    return True


class TensorflowScopes(Backend):
    """The mixin for scopes."""

    def has_only_host(self) -> bool:
        return computes_on_host() or super().has_only_host()

    # `compiling` stays False: tf.function runs Python while it traces, so context variables work there as elsewhere.

    def scope(self, device: Device) -> AbstractContextManager[object]:
        if device is CPU and computes_on_host():
            return NO_SCOPE
        if in_xla():
            raise refused_in_xla(self)
        entered: AbstractContextManager[object] = tf.device(self.to_native(device))
        return entered

    def tracing(self) -> bool:
        return (
            not context.context()._thread_local_data.is_eager
        )  # what `tf.executing_eagerly` asks, in a third of the time
