"""Putting another tensor under a variable that others hold, on another device, too.

A ``tf.Variable`` is a Python object over a handle, and a handle stays on its device for ever.  So a variable that moves
gets another handle, made on the device it goes to, and stays itself: for models, optimizers and whoever else holds it.

What was compiled has the old handle built in.  The old handle is therefore given a value without elements, in a shape
that fits nothing: its memory comes back whoever holds it, and nothing computes with weights of yesterday; and every
``tf.function`` that used it is compiled anew at its next call (`forget`).
"""

from __future__ import annotations

import gc
import sys
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from tensorflow.core.function.polymorphism.function_cache import FunctionCache
from tensorflow.python.eager import record
from tensorflow.python.ops import gen_resource_variable_ops, resource_variable_ops

from devshim.errors import UnsupportedError

if TYPE_CHECKING:
    from devshim.contract.backend import Backend, Tensor
    from devshim.devices.device import Device

__all__ = ["Exchange", "forget", "is_hosts", "refuse"]

_NOTHING = (0,) * 8
"""A shape without elements, of more dimensions than any operator takes."""

_left: list[tuple[weakref.ref[Any], weakref.ref[Exchange]]] = []
"""Handles that have been left, which a compiled function may have, and who has left them."""


class Exchange:
    """The two ways of a leaf: reading a variable's value, and giving it another.

    Args:
        backend: The adapter.
        variable: The ``tf.Variable``.
    """

    __slots__ = ("__weakref__", "_backend", "_handles", "_variable")

    def __init__(self, backend: Backend, variable: Any) -> None:
        self._backend = backend
        self._variable = variable
        self._handles: dict[Device, Any] = {}

    def read(self) -> Tensor:
        """The value that is there now, of which no tape knows; memory is shared until the variable is written to."""
        with record.stop_recording():
            return gen_resource_variable_ops.read_variable_op(self._variable.handle, self._variable.dtype)

    def write(self, new: Tensor) -> None:
        """Give the variable a value, on the device of which it then is; the memory is that of the tensor."""
        here, there = self._backend.device_of(self._variable), self._backend.device_of(new)
        if here is not there:
            self._handles[here] = self._variable._handle
            with tf.device(new.backing_device):
                known = self._handles.pop(there, None)
                self._variable._handle = self._handle_for(new) if known is None else known
        _assign(self._variable._handle, new)
        if here is not there:
            self._leave(self._handles[here])

    def _handle_for(self, new: Tensor) -> Any:
        """A handle in the scope of its device."""
        shape, name = self._variable.shape, self._variable._handle_name.partition(":")[0]
        return resource_variable_ops.eager_safe_variable_handle(new, shape, None, name, False)

    def _leave(self, handle: Any) -> None:
        """Give back the memory of a handle that is not used any more."""
        dtype = self._variable.dtype
        with tf.device(handle.device):  # tf.zeros would need memory, for the one zero that it repeats
            _assign(handle, tf.constant(np.empty(_NOTHING, dtype.as_numpy_dtype), dtype))
        _left.append((weakref.ref(handle), weakref.ref(self)))


def _assign(handle: Any, value: Tensor) -> None:
    handle._devshim_left = value.shape == _NOTHING
    with record.stop_recording(), tf.device(handle.device):
        gen_resource_variable_ops.assign_variable_op(handle, value)


def forget() -> None:
    """Have every ``tf.function`` that uses a variable which has moved compiled anew at its next call.

    There is no list of them: where anybody still has an old handle, TensorFlow's caches are looked for among all
    objects, which takes some 50 ms.
    """
    held = [_is_held(handle(), exchange()) for handle, exchange in _left]
    _left.clear()
    if not any(held):
        return
    for cache in [each for each in gc.get_objects() if type(each) is FunctionCache]:
        if any(_uses_what_moved(function) for function in cache.values()):
            cache.clear()


def _is_held(handle: Any, exchange: Exchange | None) -> bool:
    """Whether anybody else has a handle than who left it, this function, and who counts."""
    return handle is not None and sys.getrefcount(handle) > 2 + (exchange is not None)


def _uses_what_moved(function: Any) -> bool:
    captured = getattr(getattr(function, "graph", None), "external_captures", ())
    return any(getattr(each, "_devshim_left", False) for each in captured)


def is_hosts(backend: Backend, variable: Any) -> bool:
    """Whether TensorFlow keeps a variable on the host, wherever it was made: a card has no operators for its dtype."""
    return variable.dtype in (tf.string, tf.resource, tf.variant) or (
        variable.dtype == tf.int32 and not backend.simulated
    )


def refuse(path: str, variable: Any) -> None:
    """Refuse a variable whose handle cannot be exchanged under it.

    Raises:
        UnsupportedError: It is on several devices, or of a kind that devshim does not know.
    """
    if isinstance(variable, tf.distribute.DistributedValues):
        raise UnsupportedError(
            f"{path} was made under a tf.distribute strategy, and is on the devices of that",
            "make the model outside of strategy.scope(), or leave it where the strategy has it",
        )
    if not isinstance(variable, resource_variable_ops.BaseResourceVariable) or variable._in_graph_mode:
        raise UnsupportedError(
            f"{path} is a {type(variable).__name__}, whose memory TensorFlow cannot exchange in place",
            "make it with tf.Variable or keras.Variable, outside of graphs",
        )
