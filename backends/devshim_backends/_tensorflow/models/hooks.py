"""What happens around a call of something that has a wire.

Requirements this module answers:

* A part computes in the scope of its device, and nothing is carried there silently, except to parts of a model over
  several devices.
* On such a model gradients flow back through what was carried; the result is on the device of the part that ran last.
* Training steps, eager ones too, find their batch on the model's device: Keras' data come from the host.
* An optimizer's gradients are brought to their variables: they may be older than the last move.

In a ``tf.function`` TensorFlow carries by itself, and scopes say where each operator goes.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from devshim_backends._keras.building import bring_beside
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
    """What happens around a call: nothing."""

    def __init__(self, backend: TensorflowModels) -> None:
        self._backend = backend

    def __deepcopy__(self, memo: object) -> Wire:
        return self  # the copy's variables are where they were

    def scope(self, device: Device) -> AbstractContextManager[object]:
        """The scope of a device."""
        entered: AbstractContextManager[object] = tf.device(self._backend.to_native(device))
        return entered

    def run(self, name: str, whole: Any, call: Call, args: Any, kwargs: Any) -> Any:
        """Call a method of an object that has this wire."""
        raise NotImplementedError


class Place(Wire):
    """The wire of what is on one device.

    Args:
        backend: The adapter.
        device: Where.
        carries: Whether it is part of a model over several devices, and carries its inputs.
    """

    def __init__(self, backend: TensorflowModels, device: Device, carries: bool) -> None:
        super().__init__(backend)
        self._device = device
        self._carries = carries

    def run(self, name: str, whole: Any, call: Call, args: Any, kwargs: Any) -> Any:
        if (self._carries and name == "__call__") or name in _STEPS:
            args, kwargs = carried((args, kwargs), self._device)
        if self._carries:
            RUN.last = self._device
        with self.scope(self._device):
            result = call(*args, **kwargs)
        if name == "compile":
            bring_beside(self._backend, whole)
        return result


class Floating(Wire):
    """The wire of a part without variables in a model over several devices: it computes where the last part did."""

    def run(self, name: str, whole: Any, call: Call, args: Any, kwargs: Any) -> Any:
        device = RUN.last if RUN.within else None
        if device is None or name != "__call__":
            return call(*args, **kwargs)
        args, kwargs = carried((args, kwargs), device)
        with self.scope(device):
            return call(*args, **kwargs)


class Span(Wire):
    """The wire of what has parts on several devices.

    Args:
        backend: The adapter.
        devices: Which, in the order of the parts.
    """

    def __init__(self, backend: TensorflowModels, devices: list[Device]) -> None:
        super().__init__(backend)
        self._devices = devices

    def run(self, name: str, whole: Any, call: Call, args: Any, kwargs: Any) -> Any:
        if name in ("build", "add_weight"):
            return call(*args, **kwargs)
        if name == "__call__":
            return call(*args, **kwargs) if RUN.within else self._whole_run(call, args, kwargs)
        if name in _STEPS and args and isinstance(args[0], tuple):  # inputs are carried by the parts that take them
            args = ((args[0][0], *carried(args[0][1:], self._devices[-1])), *args[1:])
        with _running(), self.scope(self._devices[-1]), _uncompiled(whole):
            result = call(*args, **kwargs)
        if name == "compile":
            bring_beside(self._backend, whole)
        return result

    def _whole_run(self, call: Call, args: Any, kwargs: Any) -> Any:
        with _running(within=True):
            result = call(*args, **kwargs)
            return result if RUN.last is None else carried(result, RUN.last)


class Apply(Wire):
    """The wire of an optimizer.

    Args:
        backend: The adapter.
        placed: Whether it was placed itself; another is only helped where what it trains is on several devices.
    """

    def __init__(self, backend: TensorflowModels, placed: bool = True) -> None:
        super().__init__(backend)
        self._placed = placed

    def run(self, name: str, whole: Any, call: Call, args: Any, kwargs: Any) -> Any:
        if name == "update_step":
            return self._at([args[1]], call, args, kwargs)
        given = args[1:2] if name == "apply" else args[:1] if name == "build" else ()
        variables = (given[0] if given else kwargs.get("trainable_variables")) or whole._trainable_variables
        if name == "apply" and args and (self._placed or len(self._devices(variables)) > 1):
            args = ([self._beside(*pair) for pair in zip(args[0], variables, strict=False)], *args[1:])
        return self._at(variables, call, args, kwargs)

    def _at(self, variables: Any, call: Call, args: Any, kwargs: Any) -> Any:
        """Call where some variables are, or, if they are on several devices, where each is."""
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
    """Let tensors of several devices meet meanwhile."""
    before = RUN.active, RUN.within, RUN.last
    RUN.active, RUN.within, RUN.last = True, within, None
    try:
        yield
    finally:
        RUN.active, RUN.within, RUN.last = before


@contextmanager
def _uncompiled(model: Any) -> Iterator[None]:
    """Have Keras compile without XLA meanwhile: that computes on one device, and drops scopes without a word."""
    before = getattr(model, "_jit_compile", False)
    if before is not False:
        model._jit_compile = False
    try:
        yield
    finally:
        if before is not False:
            model._jit_compile = before
