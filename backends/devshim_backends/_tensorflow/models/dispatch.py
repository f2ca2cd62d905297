"""Split models and placed models: this module makes models and optimizers compute on the devices of their variables.

TensorFlow computes on the current scope's device, not on that of its tensors. So each layer of a model on a GPU gets a
hook (a `Wire` of `hooks`). The hook chooses the scope in which the layer computes, builds and trains. In a model on
several devices, it also copies the layer's inputs there.

Requirements this module answers:

* ``model(x)`` computes on the model's device, without a scope, and so do ``fit``, ``evaluate``, ``predict``, calls of
  single layers, and an optimizer's ``apply``.
* A model on the host needs no hook if TensorFlow computes on the host by default.
* Layers without variables yet create them on the device on which the layer was placed.
* A model that cannot compute on several devices is refused, and so is the move.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from devshim.devices.device import CPU
from devshim.errors import ArgumentError, UnsupportedError
from devshim_backends._keras.optimizers import wrapped_optimizers
from devshim_backends._tensorflow.models import patching
from devshim_backends._tensorflow.models.hooks import Apply, Floating, Place, Span, Wire
from devshim_backends._tensorflow.models.storage_swap import forget, is_hosts
from devshim_backends._tensorflow.models.traversal import compiled_parts, is_layer, named_variables, native, parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from devshim.devices.device import Device
    from devshim_backends._tensorflow.models.models import TensorflowModels

_FUNCTIONS = ("train_function", "test_function", "predict_function")
"""The attributes that store what `fit`, `evaluate` and `predict` have compiled."""


def install_hooks(backend: TensorflowModels, obj: Any, where: Callable[[str], Device]) -> Callable[[], None]:
    """Install hooks on a model or optimizer to compute where its variables are; see `ModelBackend.install_hooks`."""
    if isinstance(obj, tf.Module) or is_layer(obj):
        wires = list(_of_model(backend, obj, where).values())
        models = [part for _, part in compiled_parts(obj)]
        optimizers = {id(model.optimizer): model.optimizer for model in models if model.optimizer is not None}
    else:
        wires, models, optimizers = [], [], {id(obj): obj}
    for optimizer in optimizers.values():
        wires += _of_optimizer(backend, optimizer)
    forget()
    before = [(part, patching.wire_of(part)) for part, _ in wires]

    def undo() -> None:
        for part, wire in before:
            patching.put(part, wire)

    for part, wire in wires:
        patching.put(part, wire)
    if any(isinstance(wire, Span) for _, wire in wires):
        patching.serve_unplaced(Apply(backend, placed=False))
    for model in models:
        for name in _FUNCTIONS:
            if getattr(model, name, None) is not None:
                setattr(model, name, None)
    return undo


# ---------------------------------------------------------------------- models
def _of_model(backend: TensorflowModels, model: Any, where: Callable[[str], Device]) -> dict[int, tuple[Any, Any]]:
    """Return each part of a model with its hook, by the part's `id`."""
    found = {id(part): (part, path) for path, part in reversed(list(parts(model)))}
    devices = {key: _devices(backend, part) for key, (part, _) in found.items()}
    for key, (part, path) in found.items():
        if not devices[key] and (part is model or not getattr(part, "built", True)):
            devices[key] = _wanted(where, path)
    every = dict.fromkeys(device for key in found for device in devices[key])
    if len(every) < 2:
        wire = _alone(backend, *every)
        return {key: (part, wire) for key, (part, _) in found.items()}
    if all(len(devices[key]) < 2 for key, (part, _) in found.items() if part is not model):
        devices[id(model)] = every
    made: dict[int, tuple[Any, Any]] = {}
    for key, (part, path) in found.items():
        made[key] = part, _in_split(backend, part, path, list(devices[key]))
        for operation in getattr(part, "_operations", ()):  # the operators of a functional model are not layers
            if id(operation) not in found:
                made[id(operation)] = operation, Floating(backend)
    return made


def _in_split(backend: TensorflowModels, part: Any, path: str, devices: list[Device]) -> Wire:
    """Return the hook for a part of a model that is on several devices."""
    if not devices:
        return Floating(backend)
    if len(devices) == 1:
        return Place(backend, devices[0], carries=True)
    own = list(dict.fromkeys(backend.device_of(x) for x in _own(backend, part)))
    if len(own) > 1:
        raise UnsupportedError(
            f"the weights of {path or 'the layer'} ({type(part).__name__}) would be on {own[0]} and {own[1]}, but it "
            "computes with all of them at once",
            "give all weights of a layer one device by the layer's name: Placement({'dense': 'gpu:0'})",
        )
    return Span(backend, devices)


def _alone(backend: TensorflowModels, device: Device = CPU) -> Wire | None:
    """Return the hook for parts that are all on one device."""
    by_itself = device is CPU and (backend.simulated or not tf.config.get_visible_devices("GPU"))
    return None if by_itself else Place(backend, device, carries=False)


def _devices(backend: TensorflowModels, part: Any) -> dict[Device, None]:
    """Return the devices of the variables of a part and of the parts inside it, in their order."""
    return {backend.device_of(x): None for _, each in parts(part) for x in _own(backend, each)}


def _own(backend: TensorflowModels, part: Any) -> Iterator[Any]:
    for each in named_variables(part):
        variable = native(each.variable)
        if variable is not None and not is_hosts(backend, variable):
            yield variable


def _wanted(where: Callable[[str], Device], path: str) -> dict[Device, None]:
    """Return the device for a part without variables; a placement that names leaves may not give one."""
    try:
        return {where(path): None}
    except ArgumentError:
        return {}


# ---------------------------------------------------------------------- optimizers
def _of_optimizer(backend: TensorflowModels, optimizer: Any) -> list[tuple[Any, Any]]:
    """Return the hooks for an optimizer and the optimizers that it wraps."""
    devices = dict.fromkeys(backend.device_of(leaf.owner) for leaf in backend.leaves(optimizer))
    # An optimizer that was moved back to the host may still be given gradients on a GPU.
    needed = len(devices) > 1 or _alone(backend, *devices) or patching.wire_of(optimizer)
    wire = Apply(backend) if needed else None
    made = [(optimizer, wire)]
    for _, inner in wrapped_optimizers(optimizer):
        made += _of_optimizer(backend, inner)
    return made
