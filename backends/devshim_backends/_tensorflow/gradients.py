"""Gradients by `tf.GradientTape`, even inside a ``tf.function``.

A tape watches tensors by their identity, so each tensor gets a new object (``tf.identity``, which shares its memory in
eager code); a variable is watched itself. Outer tapes record what is computed here, and can differentiate it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.eager import record

from devshim_backends._keras.traversal import is_variable
from devshim_backends._tensorflow.internals.locations import EAGER
from devshim_backends._tensorflow.models.align_devices import allow_mixed_devices
from devshim_backends._tensorflow.models.models import TensorflowModels
from devshim_backends._tensorflow.models.traversal import is_layer, native
from devshim_backends._tensorflow.scopes import NO_SCOPE, TensorflowScopes, computes_on_host, in_xla
from devshim_backends._tensorflow.tensors import TensorflowTensors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from devshim.contract.backend import Tensor
    from devshim.contract.gradients import Call
    from devshim.contract.models import Leaf


class TensorflowGradients(TensorflowModels, TensorflowTensors, TensorflowScopes):
    """The mixin for gradients."""

    def differentiate(
        self, call: Call, xs: Sequence[Tensor], parameters: Sequence[Leaf], models: Sequence[Any]
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        variables = [x if _is_variable(x) else self._identity(x) for x in xs]
        sources = [native(x) if _is_variable(x) else x for x in variables] + [leaf.owner for leaf in parameters]
        with self._scope_in_trace(sources):
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                for source in sources:
                    tape.watch(source)
                value, tensors = call(variables, list(models))
            with allow_mixed_devices():  # a scope is open, and parts of the function may have run on other devices
                grads = tape.gradient(value, sources, unconnected_gradients=tf.UnconnectedGradients.ZERO)
            # The gradient of an embedding is a list of rows (tf.IndexedSlices).
            grads = [grad if type(grad) is EAGER else tf.convert_to_tensor(grad) for grad in grads]
        if tf.executing_eagerly() or in_xla():
            return value, tensors, grads
        return value, tensors, [self._at_home(grad, source) for grad, source in zip(grads, sources, strict=True)]

    def stop_gradient(self, x: Tensor) -> Tensor:
        with self._device_scope(x):
            return tf.stop_gradient(tf.convert_to_tensor(x))

    def trainable(self, model: Any) -> list[Leaf]:
        leaves = [leaf for leaf in self.leaves_in_trace(model) if leaf.kind == "parameter"]
        if not is_layer(model):
            return leaves
        known = {id(native(each)) for each in model.trainable_variables}  # parts of a model of Keras may be frozen
        return [leaf for leaf in leaves if id(leaf.owner) in known]

    def link_parameters(self, model: Any, replica: Any, move: Callable[[Tensor], Tensor]) -> None:
        if not record.could_possibly_record():
            return
        replicas = {leaf.path: leaf.owner for leaf in self.leaves(replica)}
        linked: set[int] = set()
        for leaf in self.leaves(model):
            if leaf.kind == "parameter" and leaf.owner.trainable and id(leaf.owner) not in linked:
                linked.add(id(leaf.owner))
                with self._device_scope(leaf.owner):
                    value = tf.identity(leaf.owner)  # recorded, which `leaf.read` is not
                _link(replicas[leaf.path].handle, move(value))

    def autograd_crosses_threads(self) -> bool:
        return not record.could_possibly_record()  # True without any open tape

    def _identity(self, x: Tensor) -> Tensor:
        if type(x) is EAGER and computes_on_host() and not record.could_possibly_record():
            return x._copy_nograd()  # does the same in a tenth of the time, but no outer tape would record it
        with self._device_scope(x):
            return tf.identity(x)

    def _at_home(self, grad: Tensor, source: Tensor) -> Tensor:
        """Return a gradient that a ``tf.function`` computes on the device of its tensor."""
        with self._scope_in_trace([source]):
            return tf.identity(grad)

    def _device_scope(self, x: Tensor) -> AbstractContextManager[object]:
        """Return the scope of a tensor's device, even inside a ``tf.function``."""
        if computes_on_host():  # eager code without another device, so nothing to choose
            return NO_SCOPE
        if self.is_tracer(x):
            return self._scope_in_trace([x])
        entered: AbstractContextManager[object] = tf.device(self.to_native(self.device_of(x)))
        return entered


def _link(handle: Any, value: Tensor) -> None:
    """Tell the open tapes that the variable of a handle is a tensor, so that its gradients are those of the tensor."""
    record.record_operation("DevshimLink", [handle], [value], lambda *grads: [tf.convert_to_tensor(grads[0])])


def _is_variable(x: Tensor) -> bool:
    if type(x) is EAGER:
        return False
    return isinstance(x, tf.Variable) or is_variable(x)
