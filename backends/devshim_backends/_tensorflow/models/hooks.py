"""Hooks that run around method calls of a placed model, layer or optimizer.

Requirements this module answers:

* A part of a model computes in the scope of its device. Its inputs are copied there only if the model is on several
  devices; otherwise an implicit transfer would go unnoticed.
* In such a model gradients flow back through the copies, and the result is on the device of the part that ran last.
* Training steps, including eager ones, find their batch on the model's device: Keras' data come from the host.
* An optimizer's gradients are copied to their variables' devices, because they may predate the last move.

Inside a ``tf.function`` TensorFlow itself copies between devices, and scopes choose the device of each operator.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from devshim_backends._keras.building import move_states_to_weights
from devshim_backends._tensorflow.models.align_devices import RUN, carried
from devshim_backends._tensorflow.models.traversal import native

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from devshim.devices.device import Device
    from devshim_backends._tensorflow.models.models import TensorflowModels

    Call = Callable[..., Any]

_STEPS = frozenset({"train_step", "test_step", "predict_step"})


class Wire:
    """The base class of hooks, which run around a call."""

    def __init__(self, backend: TensorflowModels) -> None:
        self._backend = backend

    def __deepcopy__(self, memo: object) -> Wire:
        return self  # the variables of the copy are on the same devices

    def scope(self, device: Device) -> AbstractContextManager[object]:
        """Return the scope of a device."""
        entered: AbstractContextManager[object] = tf.device(self._backend.to_native(device))
        return entered

    def run(self, name: str, obj: Any, call: Call, args: Any, kwargs: Any) -> Any:
        """Call a method of an object that has this hook."""
        raise NotImplementedError


class Place(Wire):
    """The hook for a part on one device.

    Args:
        backend: The adapter.
        device: The part's device.
        carries: True if the part belongs to a model on several devices, so that its inputs are copied to it.
    """

    def __init__(self, backend: TensorflowModels, device: Device, carries: bool) -> None:
        super().__init__(backend)
        self._device = device
        self._carries = carries

    def run(self, name: str, obj: Any, call: Call, args: Any, kwargs: Any) -> Any:
        if (self._carries and name == "__call__") or name in _STEPS:
            args, kwargs = carried((args, kwargs), self._device)
        if self._carries:
            RUN.last = self._device
        with self.scope(self._device):
            result = call(*args, **kwargs)
        if name == "compile":
            move_states_to_weights(self._backend, obj)
        return result


class Floating(Wire):
    """The hook for a part without variables in a split model: it computes on the device of the part that ran last."""

    def run(self, name: str, obj: Any, call: Call, args: Any, kwargs: Any) -> Any:
        device = RUN.last if RUN.within else None
        if device is None or name != "__call__":
            return call(*args, **kwargs)
        args, kwargs = carried((args, kwargs), device)
        with self.scope(device):
            return call(*args, **kwargs)


class Span(Wire):
    """The hook for a model or layer with parts on several devices.

    Args:
        backend: The adapter.
        devices: The devices, in the order of the parts.
    """

    def __init__(self, backend: TensorflowModels, devices: list[Device]) -> None:
        super().__init__(backend)
        self._devices = devices

    def run(self, name: str, obj: Any, call: Call, args: Any, kwargs: Any) -> Any:
        if name in ("build", "add_weight"):
            return call(*args, **kwargs)
        if name == "__call__":
            return call(*args, **kwargs) if RUN.within else self._whole_run(call, args, kwargs)
        if name in _STEPS and args and isinstance(args[0], tuple):  # the parts that take inputs copy them
            args = ((args[0][0], *carried(args[0][1:], self._devices[-1])), *args[1:])
        with _running(), self.scope(self._devices[-1]), _uncompiled(obj):
            result = call(*args, **kwargs)
        if name == "compile":
            move_states_to_weights(self._backend, obj)
        return result

    def _whole_run(self, call: Call, args: Any, kwargs: Any) -> Any:
        with _running(within=True):
            result = call(*args, **kwargs)
            return result if RUN.last is None else carried(result, RUN.last)


class Apply(Wire):
    """The hook for an optimizer.

    Args:
        backend: The adapter.
        placed: True if the optimizer was placed; otherwise the hook only acts if its variables are on several devices.
    """

    def __init__(self, backend: TensorflowModels, placed: bool = True) -> None:
        super().__init__(backend)
        self._placed = placed

    def run(self, name: str, obj: Any, call: Call, args: Any, kwargs: Any) -> Any:
        if name == "update_step":
            return self._at([args[1]], call, args, kwargs)
        given = args[1:2] if name == "apply" else args[:1] if name == "build" else ()
        variables = (given[0] if given else kwargs.get("trainable_variables")) or obj._trainable_variables
        if name == "apply" and args and (self._placed or len(self._devices(variables)) > 1):
            args = ([self._beside(*pair) for pair in zip(args[0], variables, strict=False)], *args[1:])
        return self._at(variables, call, args, kwargs)

    def _at(self, variables: Any, call: Call, args: Any, kwargs: Any) -> Any:
        """Call in the scope of the variables' device, or, if they are on several devices, let operators mix these."""
        devices = self._devices(variables)
        if len(devices) < 2 and not (self._placed and devices):
            return call(*args, **kwargs)
        with _running() if len(devices) > 1 else self.scope(devices.pop()):
            return call(*args, **kwargs)

    def _devices(self, variables: Any) -> set[Device]:
        return {self._backend.device_of(native(each)) for each in variables}

    def _beside(self, gradient: Any, variable: Any) -> Any:
        return gradient if gradient is None else carried(gradient, self._backend.device_of(native(variable)))


@contextmanager
def _running(within: bool = False) -> Iterator[None]:
    """Allow operators on tensors of several devices inside this context."""
    before = RUN.active, RUN.within, RUN.last
    RUN.active, RUN.within, RUN.last = True, within, None
    try:
        yield
    finally:
        RUN.active, RUN.within, RUN.last = before


@contextmanager
def _uncompiled(model: Any) -> Iterator[None]:
    """Make Keras compile without XLA in this context: XLA uses one device and silently ignores scopes."""
    before = getattr(model, "_jit_compile", False)
    if before is not False:
        model._jit_compile = False
    try:
        yield
    finally:
        if before is not False:
            model._jit_compile = before
