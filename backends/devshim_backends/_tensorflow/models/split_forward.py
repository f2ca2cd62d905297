"""The hooks of placed models, layers and optimizers, which run around calls of their methods.

`patching` gives each call of a method such as ``__call__``, ``fit`` or ``apply`` to the hook of its object. The hook
calls the original method in the scope of a device. `dispatch` chooses the hook of each object.

Requirements of this module:

* A part of a model computes in the scope of its device. Its inputs are copied there only if the model is split;
  otherwise an implicit transfer would go unnoticed.
* In a split model gradients flow back through the copies, and the result is on the device of the part that ran last.
* Training steps, including eager ones, find their batch on the model's device: Keras' data come from the host.
* An optimizer's gradients are copied to their variables' devices, because they may predate the last move.

Inside a ``tf.function`` TensorFlow itself copies between devices, and scopes choose the device of each operator.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from devshim_backends._keras.building import move_states_to_weights
from devshim_backends._tensorflow.models.align_devices import SPLIT, allow_mixed_devices, copy_tensors
from devshim_backends._tensorflow.models.traversal import native

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from devshim.devices.device import Device
    from devshim_backends._tensorflow.models.models import TensorflowModels

    Method = Callable[..., Any]

_STEPS = frozenset({"train_step", "test_step", "predict_step"})


class CallHook:
    """The base class of hooks."""

    def __init__(self, backend: TensorflowModels) -> None:
        self._backend = backend

    def __deepcopy__(self, memo: object) -> CallHook:
        return self  # the variables of the copy are on the same devices

    def scope(self, device: Device) -> AbstractContextManager[object]:
        """Return the scope of a device."""
        entered: AbstractContextManager[object] = tf.device(self._backend.to_native(device))
        return entered

    def invoke(self, name: str, obj: Any, method: Method, args: Any, kwargs: Any) -> Any:
        """Call a method of the object that has this hook.

        Args:
            name: The method's name.
            obj: The object.
            method: The original method, bound to the object.
            args: The call's positional arguments.
            kwargs: The call's named arguments.
        """
        raise NotImplementedError


class DeviceHook(CallHook):
    """The hook for a part whose variables are all on one device: it computes there.

    Args:
        backend: The adapter.
        device: The part's device.
        in_split: True if the part belongs to a split model, so that its inputs are copied to it.
    """

    def __init__(self, backend: TensorflowModels, device: Device, in_split: bool) -> None:
        super().__init__(backend)
        self._device = device
        self._in_split = in_split

    def invoke(self, name: str, obj: Any, method: Method, args: Any, kwargs: Any) -> Any:
        if (self._in_split and name == "__call__") or name in _STEPS:
            args, kwargs = copy_tensors((args, kwargs), self._device)
        if self._in_split:
            SPLIT.last_device = self._device
        with self.scope(self._device):
            result = method(*args, **kwargs)
        if name == "compile":
            move_states_to_weights(self._backend, obj)
        return result


class FollowHook(CallHook):
    """The hook for a part without variables in a split model: it computes on the device of the part that ran last."""

    def invoke(self, name: str, obj: Any, method: Method, args: Any, kwargs: Any) -> Any:
        device = SPLIT.last_device if SPLIT.in_forward else None
        if device is None or name != "__call__":
            return method(*args, **kwargs)
        args, kwargs = copy_tensors((args, kwargs), device)
        with self.scope(device):
            return method(*args, **kwargs)


class SplitHook(CallHook):
    """The hook for a model or layer with parts on several devices. The parts that take its inputs copy them.

    Args:
        backend: The adapter.
        devices: The devices, in the order of the parts.
    """

    def __init__(self, backend: TensorflowModels, devices: list[Device]) -> None:
        super().__init__(backend)
        self._last = devices[-1]

    def invoke(self, name: str, obj: Any, method: Method, args: Any, kwargs: Any) -> Any:
        if name in ("build", "add_weight") or (name == "__call__" and SPLIT.in_forward):
            return method(*args, **kwargs)
        if name == "__call__":
            return self._forward(method, args, kwargs)
        if name in _STEPS and args and isinstance(args[0], tuple):
            inputs, *targets = args[0]
            args = ((inputs, *copy_tensors(targets, self._last)), *args[1:])
        with allow_mixed_devices(), self.scope(self._last), _disable_xla(obj):
            result = method(*args, **kwargs)
        if name == "compile":
            move_states_to_weights(self._backend, obj)
        return result

    def _forward(self, method: Method, args: Any, kwargs: Any) -> Any:
        """Run the forward pass of the outermost split model, and return its result on the device of the last part."""
        with allow_mixed_devices(in_forward=True):
            result = method(*args, **kwargs)
            return result if SPLIT.last_device is None else copy_tensors(result, SPLIT.last_device)


class OptimizerHook(CallHook):
    """The hook for an optimizer: it updates each variable on that variable's device.

    Args:
        backend: The adapter.
        placed: True if the optimizer was placed; otherwise the hook only acts if its variables are on several devices.
    """

    def __init__(self, backend: TensorflowModels, placed: bool = True) -> None:
        super().__init__(backend)
        self._placed = placed

    def invoke(self, name: str, obj: Any, method: Method, args: Any, kwargs: Any) -> Any:
        if name == "update_step":
            return self._call_at([args[1]], method, args, kwargs)
        passed = args[1:2] if name == "apply" else args[:1] if name == "build" else ()
        variables = (passed[0] if passed else kwargs.get("trainable_variables")) or obj._trainable_variables
        if name == "apply" and args and (self._placed or len(self._devices(variables)) > 1):
            gradients = [self._copy_gradient(*pair) for pair in zip(args[0], variables, strict=False)]
            args = (gradients, *args[1:])
        return self._call_at(variables, method, args, kwargs)

    def _call_at(self, variables: Any, method: Method, args: Any, kwargs: Any) -> Any:
        """Call in the scope of the variables' device; if they are on several devices, operators may mix these."""
        devices = self._devices(variables)
        if len(devices) < 2 and not (self._placed and devices):
            return method(*args, **kwargs)
        with allow_mixed_devices() if len(devices) > 1 else self.scope(devices.pop()):
            return method(*args, **kwargs)

    def _devices(self, variables: Any) -> set[Device]:
        return {self._backend.device_of(native(each)) for each in variables}

    def _copy_gradient(self, gradient: Any, variable: Any) -> Any:
        """Return a gradient on the device of its variable."""
        return None if gradient is None else copy_tensors(gradient, self._backend.device_of(native(variable)))


@contextmanager
def _disable_xla(model: Any) -> Iterator[None]:
    """Make Keras compile without XLA in this context: XLA uses one device and silently ignores scopes."""
    before = getattr(model, "_jit_compile", False)
    if before is not False:
        model._jit_compile = False
    try:
        yield
    finally:
        if before is not False:
            model._jit_compile = before
