"""The device of TensorFlow tensors, and the types that count as tensors.

Requirements of this module:

* The device is that of the memory. ``x.device`` is where an operator ran; int32 and shape tensors on a GPU, and the
  results of a ``tf.function``, can be elsewhere (tensorflow/tensorflow#34071). ``backing_device`` has the true device.
* Inside a ``tf.function`` a tensor has a device if its operator was given one. An argument has none, because one trace
  serves calls from every device.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import tensorflow as tf
from tensorflow.python.eager import context

from devshim.devices.device import CPU
from devshim.errors import UnsupportedError, messages
from devshim_backends._tensorflow.devices import DEVICE_BY_NAME, TensorflowDevices
from devshim_backends._tensorflow.scopes import following, in_xla

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device
    from devshim.errors import DevshimError

COMPOSITES = (tf.RaggedTensor, tf.SparseTensor, tf.IndexedSlices)
"""Tensors that consist of several tensors; they are moved part by part."""

ON_HOST = frozenset({tf.int32, tf.string, tf.resource, tf.variant})
"""Dtypes that TensorFlow's operators keep in host memory even in a GPU's scope."""

PLACED = "_devshim_placed"
"""The mark of a tensor of these dtypes that devshim has put on a simulated GPU; operators' results do not have it."""

EAGER = tf.__internal__.EagerTensor
"""The class of tensors that have values."""

RAW_DEVICE, RAW_BACKING_DEVICE = vars(EAGER)["device"].__get__, vars(EAGER)["backing_device"].__get__
"""TensorFlow's own readers of a tensor's names, which name logical CPUs also while programs see GPUs."""

_NAMES: dict[str, str] = {}


def this_process() -> str:
    """Return the text with which TensorFlow's full names of this process's devices begin."""
    owner = context.context()
    server = owner._server_def or owner._collective_ops_server_def
    job, task = ("localhost", 0) if server is None else (server.job_name, server.task_index)
    return f"/job:{job}/replica:0/task:{task}"


def keep_alive(name: str) -> str:
    """Return an equal name that is never freed, for TensorFlow's current device.

    TensorFlow (2.21) keeps Python's numbers as tensors, by value, dtype and device. Of the device's name it keeps only
    the address: if another name gets that memory, the number of one GPU is found for another.
    """
    return _NAMES.setdefault(name, name)


_ARRAYS = (tf.Tensor, tf.Variable, tf.__internal__.types.Tensor, *COMPOSITES)
"""The types that count as tensors. The third is the base of distributed variables and of Keras variables."""


class TensorflowLocations(TensorflowDevices):
    """The part of the mixin for tensors that finds their devices."""

    def is_tensor(self, cls: type) -> bool:
        return issubclass(cls, _ARRAYS)

    def is_model(self, cls: type) -> bool:
        if issubclass(cls, tf.Module):
            return True
        # With its other backends, Keras classes have no TensorFlow base and do not belong to this adapter.
        roots = {base.__module__.partition(".")[0] for base in cls.__mro__}
        names = {base.__name__ for base in cls.__mro__ if base.__module__.startswith(("keras.", "tf_keras."))}
        if "tensorflow" in roots:
            return not names.isdisjoint({"Layer", "Optimizer", "BaseOptimizer"})
        return "Metric" in names  # a class without a base that depends on Keras's backend

    def is_tracer(self, x: Tensor) -> bool:
        return type(x) is not EAGER and bool(tf.is_symbolic_tensor(x))

    def device_of(self, x: Tensor) -> Device:
        try:
            return DEVICE_BY_NAME[x.backing_device]
        except (AttributeError, KeyError):
            return self._device_of_other(x)

    def _device_of_other(self, x: Tensor) -> Device:
        """Return the device of anything but an eager tensor on a device that is in `DEVICE_BY_NAME`."""
        parts = parts_of(x)
        if parts is not None:
            return self._shared_device(x, parts)
        if isinstance(x, EAGER):
            return self._device_for_name(x, x.backing_device)
        if self.is_tracer(x):
            planned = self.planned_device(x)
            if planned is None:
                raise self._unknown_device_error()
            return planned
        # x is a tf.Variable, or a Keras variable, which contains one.
        variable = x if isinstance(x, tf.Variable) else x.value
        found = self._device_for_name(variable, variable.device)
        if self.is_accelerator(found) and variable.dtype in ON_HOST:
            return self.device_of(variable.read_value())
        return found

    def _shared_device(self, x: Tensor, parts: Sequence[Tensor]) -> Device:
        devices = {self.device_of(part) for part in parts}
        if len(devices) != 1:
            names = ", ".join(map(str, sorted(devices))) or "no device"
            msg = f"this {type(x).__name__} is not on a single device: its parts are on {names}"
            raise UnsupportedError(msg, "ask for the device of each part")
        return devices.pop()

    def _device_for_name(self, x: Tensor, name: str) -> Device:
        found = self.device_named(name)
        if found is not None:
            return found
        if not tf.executing_eagerly():
            raise self._unknown_device_error()
        msg = f"this {type(x).__name__} is on TensorFlow's device {name!r}, which devshim does not know"
        raise UnsupportedError(msg, "move it with TensorFlow first: with tf.device('/CPU:0'): x = tf.identity(x)")

    def planned_device(self, x: Tensor) -> Device | None:
        """Return the device of a tracer: its operator's, or that of the captured tensor; None if it has none yet."""
        for outside, inside in getattr(x.graph, "captures", ()):
            if inside is x and outside.dtype != tf.resource:
                return self.planned_device(outside) if self.is_tracer(outside) else self.device_of(outside)
        found = self.device_named(x.device) if x.device else None
        # A GPU's name is not reliable with soft placement, and for operators that keep int32 on the host.
        if found is not None and found is not CPU and (found.index >= self.count(found.kind) or x.dtype in ON_HOST):
            return None
        return found

    def scope_of_tracers(self, xs: Sequence[Tensor]) -> AbstractContextManager[object] | None:
        tracers = [part for x in xs if self.is_tracer(x) for part in parts_of(x) or [x]]
        unplaced = [x for x in tracers if self.planned_device(x) is None]
        on_device = [x for x in unplaced if x.dtype not in ON_HOST]
        return following((on_device or unplaced)[0]) if unplaced else None

    def _scope_in_trace(self, xs: Sequence[Tensor]) -> AbstractContextManager[object]:
        """Return the scope in which a ``tf.function`` computes with these tensors: of the device that all share."""
        if tf.executing_eagerly() or in_xla():  # in eager code, the caller has opened a scope
            return nullcontext()
        following_tracers = self.scope_of_tracers(xs)
        if following_tracers is not None:
            return following_tracers
        devices = {self.device_of(x) for x in xs}
        return self.scope(devices.pop()) if len(devices) == 1 else nullcontext()

    def _unknown_device_error(self) -> Exception:
        return messages.tracing(
            self, "device_of", "place the tensor on a device inside the function first, or ask outside of it"
        )


def parts_of(x: Tensor) -> Sequence[Tensor] | None:
    """Return the parts of a composite or distributed value, or None for a plain tensor."""
    if isinstance(x, COMPOSITES):
        flat: Sequence[Tensor] = tf.nest.flatten(x, expand_composites=True)
        return flat
    if isinstance(x, tf.distribute.DistributedValues):
        values: Sequence[Tensor] = x.values
        return values
    return None


def require_dense(x: Tensor, problem: str, error: type[DevshimError]) -> None:
    """Raise an error for a tensor that is not a single block of numbers, and name the call that makes it one.

    Args:
        x: The tensor.
        problem: The text of the error, with ``{}`` for the name of the tensor's class.
        error: The class of the error.
    """
    if isinstance(x, COMPOSITES):
        instead = {"RaggedTensor": "x.to_tensor()", "SparseTensor": "tf.sparse.to_dense(x)"}
        call = instead.get(type(x).__name__, "tf.convert_to_tensor(x)")
        raise error(problem.format(type(x).__name__), f"call {call} first")
