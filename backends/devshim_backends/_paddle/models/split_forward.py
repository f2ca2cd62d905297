"""Hooks that call a placed layer: in a scope of its device and, in a split model, with its inputs copied there.

Requirements that this module meets:

* A part on one device gets its inputs there, in any lists, tuples and dictionaries; gradients flow back.
* The results of parts can meet in the code of the layer that contains them (a residual connection, a concatenation):
  there the layer's inputs and its parts' results are copied to one device. The links of a chain pass theirs on.
* The result is on the device of the part that ran last, or where a layer's results meet.
* The device of a tensor is queried at each call, so ``copy.deepcopy``, pickle and Paddle's own ``to`` return a model
  that works.
* An exception, Ctrl-C included, leaves no state behind.

How it works: ``Layer.__call__`` passes calls of a layer that has a hook to its method ``_dygraph_call_func`` (3.0 to
3.3), which is looked up in the layer's own attributes first. So ``forward``, which ``to_static`` and ``jit.save``
read, stays unchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import ref

import paddle

from devshim.tensors import activations
from devshim_backends._paddle.devices import core, device_at
from devshim_backends._paddle.models.internals.lazy_parameters import planned_device
from devshim_backends._paddle.models.storage_swap import has_memory
from devshim_backends._paddle.scopes import open_scope

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device

__all__ = ["METHOD", "CallHook", "devices_of", "install_hook", "is_called", "is_chain", "own_devices_of", "tensors_of"]

METHOD = "_dygraph_call_func"
"""The method that a hook replaces."""


# ---------------------------------------------------------------------- devices of a layer's tensors
def devices_of(layer: Any) -> dict[Device, None]:
    """Return the devices of the parameters and buffers of a layer and of all layers in it, in their order."""
    return {device: None for each in layer.sublayers(include_self=True) for device in _iter_own_devices(each)}


def own_devices_of(layer: Any) -> dict[Device, None]:
    """Return the devices of the tensors that a layer itself computes with; for a recurrent one, of all its tensors."""
    return devices_of(layer) if hasattr(layer, "_all_weights") else dict.fromkeys(_iter_own_devices(layer))


def _iter_own_devices(layer: Any) -> Iterator[Device]:
    for tensor in tensors_of(layer):
        yield _get_device(tensor)


def tensors_of(layer: Any) -> Iterator[Tensor]:
    """Yield a layer's own parameters and buffers that have memory, or will get it on a known device."""
    for tensors in (layer._parameters, layer._buffers):
        yield from (
            tensor
            for tensor in tensors.values()
            if tensor is not None and (has_memory(tensor) or planned_device(tensor))
        )


def _get_device(tensor: Tensor) -> Device:
    device = device_at(tensor.place) if has_memory(tensor) else planned_device(tensor)
    assert device is not None, "a placed tensor has a device"
    return device


def is_called(layer: Any) -> bool:
    """Return True if a layer computes something, and is not just a list of layers."""
    return type(layer).forward is not paddle.nn.Layer.forward


def is_chain(layer: Any) -> bool:
    """Return True if a layer only passes its input from part to part."""
    return type(layer).forward is paddle.nn.Sequential.forward and "forward" not in vars(layer)


# ---------------------------------------------------------------------- calls
def install_hook(layer: Any, hook: CallHook) -> None:
    """Install a hook that calls a layer."""
    vars(layer)[METHOD] = hook
    layer.register_forward_pre_hook(hook.do_nothing)


class CallHook:
    """A hook that calls a layer in a scope of its device, with its inputs copied there if the model is split.

    It does not keep the layer, or the layer's memory on GPUs, alive.

    Args:
        model: The model that was placed.
        layer: The layer.
        computes_with: The tensor on whose device the layer computes; if None, its own first tensor, if it has any.
        moves_inputs: True if its inputs are copied there.
        results_to: The tensor to whose device its results are copied, if any.
    """

    def __init__(
        self, model: Any, layer: Any, *, computes_with: Any = None, moves_inputs: bool = False, results_to: Any = None
    ) -> None:
        self._model = ref(model)
        self._layer = ref(layer)
        self._computes_with = computes_with
        self._moves_inputs = moves_inputs
        self.results_to = results_to

    @property
    def model(self) -> Any:
        """The model that was placed; None if it was deleted, and only the layer is left."""
        return self._model()

    def __deepcopy__(self, memo: dict[int, Any]) -> CallHook:
        layer = memo[id(self._layer())]
        model = memo.get(id(self._model()), layer)
        computes_with, results_to = (memo.get(id(each), each) for each in (self._computes_with, self.results_to))
        return CallHook(
            model, layer, computes_with=computes_with, moves_inputs=self._moves_inputs, results_to=results_to
        )

    def __reduce__(self) -> Any:
        return _unpickle_hook, (self._model(), self._layer(), self._computes_with, self._moves_inputs, self.results_to)

    def do_nothing(self, layer: Any, inputs: Any) -> None:
        """Do nothing; Paddle calls a layer through this object only if the layer has a hook."""

    def uninstall(self) -> None:
        """Uninstall the hook, so that the layer is called as before."""
        layer: Any = self._layer()
        hooks = layer._forward_pre_hooks
        del vars(layer)[METHOD]
        for key in [key for key, hook in hooks.items() if getattr(hook, "__self__", None) is self]:
            del hooks[key]

    def __call__(self, *inputs: Any, **kwargs: Any) -> Any:
        layer = self._layer()
        call_layer = getattr(type(layer), METHOD)
        device = self._device(layer, inputs, kwargs) if paddle.in_dynamic_mode() else None
        if device is None:
            return call_layer(layer, *inputs, **kwargs)
        if self._moves_inputs:
            inputs, kwargs = move_tensors(inputs, device), move_tensors(kwargs, device)
        with open_scope(device):
            results = call_layer(layer, *inputs, **kwargs)
        return results if self.results_to is None else move_tensors(results, _get_device(self.results_to))

    def _device(self, layer: Any, inputs: Any, kwargs: Any) -> Device | None:
        """Return the device that the layer computes on: for one without tensors (activations), that of its inputs."""
        if self._computes_with is not None:
            return _get_device(self._computes_with)
        tensor = next((x for each in layer.sublayers(include_self=True) for x in tensors_of(each)), None)
        if tensor is None:
            tensor = next((x for x in (*inputs, *kwargs.values()) if isinstance(x, core.eager.Tensor)), None)
        return None if tensor is None else _get_device(tensor)


def _unpickle_hook(model: Any, layer: Any, computes_with: Any, moves_inputs: bool, results_to: Any) -> CallHook:
    """Return a hook from its pickled parts."""
    return CallHook(model, layer, computes_with=computes_with, moves_inputs=moves_inputs, results_to=results_to)


def move_tensors(value: Any, device: Device) -> Any:
    """Return the same lists, tuples and dictionaries with every tensor on a device; `value` itself if nothing moves."""
    if isinstance(value, core.eager.Tensor):
        return activations.move_activation(value, device) if has_memory(value) else value
    if isinstance(value, dict):
        copies: Any = {key: move_tensors(each, device) for key, each in value.items()}
        return copies if any(copies[key] is not value[key] for key in value) else value
    if isinstance(value, (list, tuple)):
        moved = [move_tensors(each, device) for each in value]
        if all(a is b for a, b in zip(moved, value, strict=True)):
            return value
        return type(value)(*moved) if hasattr(value, "_fields") else type(value)(moved)
    return value
