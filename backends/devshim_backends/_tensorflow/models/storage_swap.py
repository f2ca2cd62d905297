"""The storage swap of a variable: another tensor replaces its value, even on another device, and the variable stays.

A ``tf.Variable`` is a Python object over a handle, and a handle never leaves its device. So a variable that moves gets
another handle, created on the new device. The variable stays the same object for models, optimizers and other owners.

Compiled functions contain the old handle. So the old handle gets a value without elements, in a shape that fits
nothing. This frees its memory even if other code still refers to the handle, and nothing computes with outdated
weights. Every ``tf.function`` that used the handle is compiled again at its next call (`recompile_functions`).
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

__all__ = ["StorageSwap", "check_swappable", "recompile_functions", "stays_on_host"]

_NO_ELEMENTS = (0,) * 8
"""A shape without elements, with more dimensions than any operator accepts."""

_replaced: list[tuple[weakref.ref[Any], weakref.ref[StorageSwap]]] = []
"""Handles that were replaced, which compiled functions may still use, and the `StorageSwap` that replaced them."""


class StorageSwap:
    """The reader and writer of a leaf: reads a variable's value, and gives it another.

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
        """Return the current value, unrecorded by tapes; memory is shared until the variable is written to."""
        with record.stop_recording():
            return gen_resource_variable_ops.read_variable_op(self._variable.handle, self._variable.dtype)

    def write(self, new: Tensor) -> None:
        """Give the variable a value and its device; the variable uses the tensor's memory."""
        source, target = self._backend.device_of(self._variable), self._backend.device_of(new)
        if source is target:
            return _assign(self._variable._handle, new)
        self._handles[source] = self._variable._handle
        with tf.device(new.backing_device):
            known = self._handles.pop(target, None)
            self._variable._handle = self._create_handle(new) if known is None else known
        _assign(self._variable._handle, new)
        self._empty(self._handles[source])

    def _create_handle(self, new: Tensor) -> Any:
        """Return a new handle; the caller is in the scope of its device."""
        shape, name = self._variable.shape, self._variable._handle_name.partition(":")[0]
        return resource_variable_ops.eager_safe_variable_handle(new, shape, None, name, False)

    def _empty(self, handle: Any) -> None:
        """Free the memory of a handle that was replaced."""
        dtype = self._variable.dtype
        with tf.device(handle.device):  # tf.zeros would need memory for the zero that it repeats
            _assign(handle, tf.constant(np.empty(_NO_ELEMENTS, dtype.as_numpy_dtype), dtype))
        _replaced.append((weakref.ref(handle), weakref.ref(self)))


def _assign(handle: Any, value: Tensor) -> None:
    handle._devshim_emptied = value.shape == _NO_ELEMENTS
    with record.stop_recording(), tf.device(handle.device):
        gen_resource_variable_ops.assign_variable_op(handle, value)


def recompile_functions() -> None:
    """Make every ``tf.function`` that uses a moved variable compile again at its next call.

    TensorFlow has no list of these functions. If other code still refers to an old handle, this searches all Python
    objects for TensorFlow's caches, which takes about 50 ms.
    """
    referenced = [_is_referenced(handle(), swap()) for handle, swap in _replaced]
    _replaced.clear()
    if not any(referenced):
        return
    for cache in [each for each in gc.get_objects() if type(each) is FunctionCache]:
        if any(_uses_moved_variable(function) for function in cache.values()):
            cache.clear()


def _is_referenced(handle: Any, swap: StorageSwap | None) -> bool:
    """Return True if a handle has other references than its `StorageSwap`, the calling code and the counting."""
    return handle is not None and sys.getrefcount(handle) > 2 + (swap is not None)


def _uses_moved_variable(function: Any) -> bool:
    captured = getattr(getattr(function, "graph", None), "external_captures", ())
    return any(getattr(each, "_devshim_emptied", False) for each in captured)


def stays_on_host(backend: Backend, variable: Any) -> bool:
    """Return True if TensorFlow keeps a variable on the host in all scopes, as GPUs lack operators for its dtype."""
    return variable.dtype in (tf.string, tf.resource, tf.variant) or (
        variable.dtype == tf.int32 and not backend.simulated
    )


def check_swappable(path: str, variable: Any) -> None:
    """Refuse a variable whose handle cannot be replaced.

    Raises:
        UnsupportedError: The variable is on several devices, or of a type that devshim does not know.
    """
    if isinstance(variable, tf.distribute.DistributedValues):
        msg = f"{path} was created under a tf.distribute strategy, and stays on the devices of that strategy"
        raise UnsupportedError(msg, "create the model outside strategy.scope(), or do not move it")
    if not isinstance(variable, resource_variable_ops.BaseResourceVariable) or variable._in_graph_mode:
        msg = f"{path} is a {type(variable).__name__}, whose memory cannot be swapped in place"
        raise UnsupportedError(msg, "create it with tf.Variable or keras.Variable, outside graphs")
