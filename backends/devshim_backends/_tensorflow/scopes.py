"""`tf.device` as the scope of operators: this thread's, nested, restored, and traced into a ``tf.function``.

Inside a ``tf.function`` the scope is written into each operator and holds wherever the function is called from.
XLA (``jit_compile=True``) compiles the whole function for one device and drops such wishes without a word, so
there a scope is refused.

AutoGraph, which reads a ``tf.function``'s source, replaces an error by a ``StagingError`` of its own unless the error
is marked (2.16 to 2.21: ``ag_pass_through`` in ``autograph/impl/api.py``); so ours are, and catching
``ds.TracingError`` works.  It also rewrites whatever such a function calls, which for our code takes its time and warns
of Python that it does not know: ours it is told to leave alone, but for `run`, which calls the user's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf
from tensorflow.python.autograph.core import config
from tensorflow.python.ops import control_flow_util

from devshim.contract.backend import Backend
from devshim.errors import DevshimError, messages

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from devshim.devices.device import Device

DevshimError.ag_pass_through = True  # type: ignore[attr-defined]
_ours = [config.DoNotConvert("devshim"), config.DoNotConvert("devshim_backends")]
config.CONVERSION_RULES = (config.Convert("devshim.runtime.scopes"), *_ours, *config.CONVERSION_RULES)


def in_xla() -> bool:
    """Whether the calling code is being traced for XLA."""
    return not tf.executing_eagerly() and bool(
        control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())
    )


def refused_in_xla(backend: Backend) -> Exception:
    """The refusal of a device's scope in a function that is being traced for XLA."""
    instead = "XLA compiles a whole function for one device: enter ds.on outside, or leave out jit_compile=True"
    return messages.tracing(backend, "on", instead)


class TensorflowScopes(Backend):
    """The room of scopes."""

    # `compiling` stays False: tf.function runs Python while it traces, so context variables hold there as everywhere.

    def scope(self, device: Device) -> AbstractContextManager[object]:
        if in_xla():
            raise refused_in_xla(self)
        entered: AbstractContextManager[object] = tf.device(self.to_native(device))
        return entered

    def tracing(self) -> bool:
        return not tf.executing_eagerly()
