"""Split models and placed models: this module makes models and optimizers compute on the devices of their variables.

TensorFlow computes on the device of the current scope, not on that of its tensors. So each layer, module and optimizer
of a placed model gets a hook (`split_forward`), which runs around the calls of its methods (`patching`) and opens the
scope of a device: a `DeviceHook` if all variables of the part are on one device, a `FollowHook` if a part of a split
model has no variables, a `SplitHook` if it contains parts on several devices, and an `OptimizerHook` for an optimizer.

Requirements of this module:

* ``model(x)`` computes on the model's device, without a scope, and so do ``fit``, ``evaluate``, ``predict``, calls of
  single layers, and an optimizer's ``apply``.
* A model on the host needs no hook if TensorFlow computes on the host by default.
* Layers without variables yet create them on the device on which the layer was placed.
* A model that cannot compute on several devices is refused, and so is the move.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from devshim.devices.device import CPU
from devshim.errors import ArgumentError, UnsupportedError
from devshim_backends._keras.optimizers import wrapped_optimizers
from devshim_backends._tensorflow.models import patching
from devshim_backends._tensorflow.models.split_forward import CallHook, DeviceHook, FollowHook, OptimizerHook, SplitHook
from devshim_backends._tensorflow.models.storage_swap import recompile_functions, stays_on_host
from devshim_backends._tensorflow.models.traversal import compiled_parts, is_part, named_variables, native, parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from devshim.devices.device import Device
    from devshim_backends._tensorflow.models.models import TensorflowModels

    Hooked = tuple[Any, CallHook | None]
    """An object and its hook; None for an object that needs no hook."""

_FUNCTIONS = ("train_function", "test_function", "predict_function")
"""The attributes that store what `fit`, `evaluate` and `predict` have compiled."""


def install_hooks(backend: TensorflowModels, obj: Any, where: Callable[[str], Device]) -> Callable[[], None]:
    """Install hooks on a model or optimizer to compute where its variables are; see `ModelBackend.install_hooks`."""
    if is_part(obj):
        hooked = _model_hooks(backend, obj, where)
        models = [part for _, part in compiled_parts(obj)]
        optimizers = {id(model.optimizer): model.optimizer for model in models if model.optimizer is not None}
    else:
        hooked, models, optimizers = [], [], {id(obj): obj}
    for optimizer in optimizers.values():
        hooked += _optimizer_hooks(backend, optimizer)
    recompile_functions()
    before = [(part, patching.hook_of(part)) for part, _ in hooked]
    _set_hooks(hooked)
    if any(isinstance(hook, SplitHook) for _, hook in hooked):
        patching.hook_other_optimizers(OptimizerHook(backend, placed=False))
    for model in models:
        for name in _FUNCTIONS:
            if getattr(model, name, None) is not None:
                setattr(model, name, None)
    return lambda: _set_hooks(before)


def _set_hooks(hooked: Sequence[Hooked]) -> None:
    for part, hook in hooked:
        patching.set_hook(part, hook)


# ---------------------------------------------------------------------- models
def _model_hooks(backend: TensorflowModels, model: Any, where: Callable[[str], Device]) -> list[Hooked]:
    """Return each part of a model with its hook."""
    found: dict[int, tuple[str, Any]] = {}
    devices: dict[int, list[Device]] = {}
    for path, part in parts(model):
        if id(part) not in found:  # a part with several names counts under the first
            found[id(part)] = path, part
            devices[id(part)] = _devices(backend, part) or _planned_device(model, part, path, where)
    used = list(dict.fromkeys(chain.from_iterable(devices.values())))
    if len(used) < 2:
        hook = _whole_model_hook(backend, *used)
        return [(part, hook) for _, part in found.values()]
    devices[id(model)] = used
    hooked: list[Hooked] = []
    for key, (path, part) in found.items():
        hooked.append((part, _part_hook(backend, part, path, devices[key])))
    # The operators of a functional model, such as the sum in ``x + y``, are not layers.
    operations = {id(each): each for _, part in found.values() for each in getattr(part, "_operations", ())}
    return hooked + [(each, FollowHook(backend)) for key, each in operations.items() if key not in found]


def _part_hook(backend: TensorflowModels, part: Any, path: str, devices: list[Device]) -> CallHook:
    """Return the hook for a part of a split model."""
    if not devices:
        return FollowHook(backend)
    if len(devices) == 1:
        return DeviceHook(backend, devices[0], in_split=True)
    own = list(dict.fromkeys(backend.device_of(x) for x in _own_variables(backend, part)))
    if len(own) > 1:
        msg = (
            f"the weights of {path or 'the layer'} ({type(part).__name__}) would be on {own[0]} and {own[1]}, but it "
            "computes with all of them together"
        )
        raise UnsupportedError(
            msg,
            "give all weights of a layer one device by the layer's name: Placement({'dense': 'gpu:0'})",
        )
    return SplitHook(backend, devices)


def _whole_model_hook(backend: TensorflowModels, device: Device = CPU) -> CallHook | None:
    """Return the hook for the parts of a model that is on one device."""
    computes_on_host = (backend.simulated and not backend.native_names) or not tf.config.get_visible_devices("GPU")
    return None if device is CPU and computes_on_host else DeviceHook(backend, device, in_split=False)


def _devices(backend: TensorflowModels, part: Any) -> list[Device]:
    """Return the devices of the variables of a part and of the parts inside it, in their order."""
    variables = (x for _, each in parts(part) for x in _own_variables(backend, each))
    return list(dict.fromkeys(backend.device_of(x) for x in variables))


def _own_variables(backend: TensorflowModels, part: Any) -> Iterator[Any]:
    for each in named_variables(part):
        variable = native(each.variable)
        if variable is not None and not stays_on_host(backend, variable):
            yield variable


def _planned_device(model: Any, part: Any, path: str, where: Callable[[str], Device]) -> list[Device]:
    """Return the device for a part that has no variables yet; a placement that names leaves may not give one."""
    if part is not model and getattr(part, "built", True):
        return []
    try:
        return [where(path)]
    except ArgumentError:
        return []


# ---------------------------------------------------------------------- optimizers
def _optimizer_hooks(backend: TensorflowModels, optimizer: Any) -> list[Hooked]:
    """Return the hooks for an optimizer and the optimizers that it wraps."""
    devices = dict.fromkeys(backend.device_of(leaf.owner) for leaf in backend.leaves(optimizer))
    # An optimizer that was moved back to the host may still be given gradients on a GPU.
    needed = len(devices) > 1 or _whole_model_hook(backend, *devices) or patching.hook_of(optimizer)
    hooked: list[Hooked] = [(optimizer, OptimizerHook(backend) if needed else None)]
    for _, inner in wrapped_optimizers(optimizer):
        hooked += _optimizer_hooks(backend, inner)
    return hooked
