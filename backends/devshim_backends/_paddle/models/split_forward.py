"""Hooks that call a placed layer: in a scope of its device and, in a split model, with its inputs copied there.

Requirements that this module meets:

* A part on one device gets its inputs there, in any lists, tuples and dictionaries; gradients flow back.
* The results of parts can meet in the code of the layer that contains them (a residual connection, a concatenation):
  there the layer's inputs and its parts' results are copied to one device.  The links of a chain pass theirs on.
* The result is on the device of the part that ran last, or where a layer's results meet.
* The device of a tensor is queried at each call, so ``copy.deepcopy``, pickle and Paddle's own ``to`` return a model
  that works.
* An exception, Ctrl-C included, leaves no state behind.

How it works: ``Layer.__call__`` passes calls of a layer that has a hook to its method ``_dygraph_call_func`` (2.6 to
3.3), which is looked up in the layer's own attributes first.  So ``forward``, which ``to_static`` and ``jit.save``
read, stays unchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import ref

import paddle

from devshim.tensors import activations
from devshim_backends._paddle.devices import core, device_at
from devshim_backends._paddle.models.lazy_parameters import planned
from devshim_backends._paddle.models.storage_swap import is_made
from devshim_backends._paddle.scopes import open_scope

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device

__all__ = ["METHOD", "Wire", "devices_of", "is_called", "is_chain", "own_devices_of", "put_on", "tensors_of"]

METHOD = "_dygraph_call_func"
"""The method that a hook replaces."""


# ---------------------------------------------------------------------- devices of a layer's tensors
def devices_of(layer: Any) -> dict[Device, None]:
    """Return the devices of the parameters and buffers of a layer and of all layers in it, in their order."""
    return {device: None for each in layer.sublayers(include_self=True) for device in _own(each)}


def own_devices_of(layer: Any) -> dict[Device, None]:
    """Return the devices of the tensors that a layer itself computes with; for a recurrent one, of all its tensors."""
    return devices_of(layer) if hasattr(layer, "_all_weights") else dict.fromkeys(_own(layer))


def _own(layer: Any) -> Iterator[Device]:
    for tensor in tensors_of(layer):
        yield _place(tensor)


def tensors_of(layer: Any) -> Iterator[Tensor]:
    """Yield a layer's own parameters and buffers that have memory, or will get it on a known device."""
    for held in (layer._parameters, layer._buffers):
        yield from (tensor for tensor in held.values() if tensor is not None and (is_made(tensor) or planned(tensor)))


def _place(tensor: Tensor) -> Device:
    found = device_at(tensor.place) if is_made(tensor) else planned(tensor)
    assert found is not None, "what has been placed is on a device"
    return found


def is_called(layer: Any) -> bool:
    """Return True if a layer computes something, and is not just a list of layers."""
    return type(layer).forward is not paddle.nn.Layer.forward


def is_chain(layer: Any) -> bool:
    """Return True if a layer only passes its input from part to part."""
    return type(layer).forward is paddle.nn.Sequential.forward and "forward" not in vars(layer)


# ---------------------------------------------------------------------- calls
def put_on(layer: Any, wire: Wire) -> None:
    """Install a hook that calls a layer."""
    vars(layer)[METHOD] = wire
    layer.register_forward_pre_hook(wire.hook)


class Wire:
    """A hook that calls a layer; it does not keep the layer alive, nor the layer's memory on cards.

    Args:
        model: The model that was placed.
        layer: The layer.
        here: The tensor on whose device the layer computes; if None, its own first tensor, if it has any.
        carries: True if its inputs are copied there.
        home: The tensor to whose device its results are copied, if any.
    """

    def __init__(self, model: Any, layer: Any, *, here: Any = None, carries: bool = False, home: Any = None) -> None:
        self._model = ref(model)
        self._layer = ref(layer)
        self._here = here
        self._carries = carries
        self.home = home

    @property
    def model(self) -> Any:
        """The model that was placed; None if it is gone, and only the layer is left."""
        return self._model()

    def __deepcopy__(self, memo: dict[int, Any]) -> Wire:
        layer = memo[id(self._layer())]
        model = memo.get(id(self._model()), layer)
        here, home = (memo.get(id(each), each) for each in (self._here, self.home))
        return Wire(model, layer, here=here, carries=self._carries, home=home)

    def __reduce__(self) -> Any:
        return _wire, (self._model(), self._layer(), self._here, self._carries, self.home)

    def hook(self, layer: Any, inputs: Any) -> None:
        """Do nothing; Paddle calls a layer through this object only if the layer has such a hook."""

    def take_off(self) -> None:
        """Uninstall the hook, so that the layer is called as before."""
        layer: Any = self._layer()
        own, hooks = vars(layer), layer._forward_pre_hooks
        del own[METHOD]
        for key in [key for key, hook in hooks.items() if getattr(hook, "__self__", None) is self]:
            del hooks[key]

    def __call__(self, *inputs: Any, **kwargs: Any) -> Any:
        layer = self._layer()
        own = getattr(type(layer), METHOD)
        device = self._device(layer, inputs, kwargs) if paddle.in_dynamic_mode() else None
        if device is None:
            return own(layer, *inputs, **kwargs)
        if self._carries:
            inputs, kwargs = carried(inputs, device), carried(kwargs, device)
        with open_scope(device):
            results = own(layer, *inputs, **kwargs)
        return results if self.home is None else carried(results, _place(self.home))

    def _device(self, layer: Any, inputs: Any, kwargs: Any) -> Device | None:
        """Return the device that the layer computes on: for one without tensors (activations), that of its inputs."""
        if self._here is not None:
            return _place(self._here)
        tensor = next((x for each in layer.sublayers(include_self=True) for x in tensors_of(each)), None)
        if tensor is None:
            tensor = next((x for x in (*inputs, *kwargs.values()) if isinstance(x, core.eager.Tensor)), None)
        return None if tensor is None else _place(tensor)


def _wire(model: Any, layer: Any, here: Any, carries: bool, home: Any) -> Wire:
    """Return a hook from its pickled parts."""
    return Wire(model, layer, here=here, carries=carries, home=home)


def carried(value: Any, device: Device) -> Any:
    """Return the same lists, tuples and dictionaries with every tensor on a device; `value` itself if nothing moves."""
    if isinstance(value, core.eager.Tensor):
        return activations.carry(value, device) if is_made(value) else value
    if isinstance(value, dict):
        made: Any = {key: carried(each, device) for key, each in value.items()}
        return made if any(made[key] is not value[key] for key in value) else value
    if isinstance(value, (list, tuple)):
        found = [carried(each, device) for each in value]
        if all(a is b for a, b in zip(found, value, strict=True)):
            return value
        return type(value)(*found) if hasattr(value, "_fields") else type(value)(found)
    return value
