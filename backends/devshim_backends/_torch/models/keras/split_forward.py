"""The forward pass and optimizer step of a split Keras model with PyTorch: each layer runs where its weights are.

As in a split ``torch.nn.Module``, inputs are copied to each layer, gradients flow back, and operands in a model's own
code are aligned (`align_devices`). A layer without weights computes where the last one did. An optimizer updates the
variables of each device separately.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from devshim.errors import UnsupportedError
from devshim_backends._torch.models.align_devices import FORWARD, AlignDevices, to_device
from devshim_backends._torch.models.keras.internals.scopes import ComputeOn, tensor_of
from devshim_backends._torch.models.keras.traversal import CONTENTS, first_device_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.contract.backend import Backend

    Call = Callable[..., Any]

__all__ = ["apply_weight_decay", "call_part", "clip_gradients", "is_split", "mark_split_layers", "update_variables"]

_MARK = "_devshim_split"
"""The attribute of a layer whose weights are on several devices; it contains these devices."""


def mark_split_layers(backend: Backend, model: Any) -> Callable[[], None]:
    """Mark the layers of a model that are on several devices, and return a function that undoes it.

    Raises:
        UnsupportedError: A layer's own weights would be on several devices.
    """
    parts = list(CONTENTS.parts(model))
    before = [(part, vars(part).get(_MARK)) for _, part in parts]
    after = []
    for path, part in parts:
        own = _devices([CONTENTS.owner(each.variable) for each in CONTENTS.named_variables(part)])
        if len(own) > 1:
            names = " and ".join(str(backend.from_native(device)) for device in own)
            msg = (
                f"the weights of {path or 'the layer'} ({type(part).__name__}) would be on {names}, but it "
                "uses all of them in the same operator"
            )
            raise UnsupportedError(
                msg,
                "give all weights of a layer one device, such as Placement({'dense': 'gpu:0'}) by the layer's name",
            )
        below = [
            CONTENTS.owner(each.variable) for _, each in CONTENTS.parts(part) for each in CONTENTS.named_variables(each)
        ]
        found = _devices(below)
        after.append((part, found if len(found) > 1 else None))

    def undo() -> None:
        for part, devices in before:
            _set_mark(part, devices)

    for part, devices in after:
        _set_mark(part, devices)
    return undo


def is_split(layer: Any) -> bool:
    """Return True for a layer whose weights are on several devices."""
    return _MARK in vars(layer)


def _set_mark(part: Any, devices: dict[Any, None] | None) -> None:
    """Set or delete the mark directly: Keras tracks attributes that are set in the usual way."""
    if devices is None:
        vars(part).pop(_MARK, None)
    else:
        vars(part)[_MARK] = devices


def _devices(tensors: list[Any]) -> dict[Any, None]:
    return {tensor.device: None for tensor in tensors if tensor is not None}


# ---------------------------------------------------------------------- layers
def call_part(original: Call, layer: Any, args: Any, kwargs: Any) -> Any:
    """Call a layer that is on several devices, or that is inside a split layer."""
    if is_split(layer):
        return _call_split_layer(original, layer, args, kwargs)
    device = first_device_of(layer) or FORWARD.last_device
    if device is None:  # a layer without weights that comes before all others
        return original(layer, *args, **kwargs)
    FORWARD.enter_part(device)
    args, kwargs = pytree.tree_map_only(torch.Tensor, lambda x: to_device(x, device), (args, kwargs))
    with ComputeOn(device, copies=False):
        return original(layer, *args, **kwargs)


def _call_split_layer(original: Call, layer: Any, args: Any, kwargs: Any) -> Any:
    if FORWARD.devices is not None:
        with ComputeOn(None, copies=False):
            return original(layer, *args, **kwargs)
    FORWARD.devices = found = vars(layer)[_MARK]
    try:
        with ComputeOn(None, copies=False), AlignDevices():
            result = original(layer, *args, **kwargs)
        last = FORWARD.last_device
        return pytree.tree_map_only(torch.Tensor, lambda x: to_device(x, last) if x.device in found else x, result)
    finally:
        FORWARD.devices = FORWARD.last_device = None


# ---------------------------------------------------------------------- optimizers
def update_variables(original: Call, optimizer: Any, args: Any, kwargs: Any) -> Any:
    """Update variables, separately for each device."""
    gradients, variables, rate = args
    if not isinstance(variables, (list, tuple)):
        if len(_group_by_device(optimizer._trainable_variables)) < 2:
            return original(optimizer, gradients, variables, rate)
        return _on_device_of(variables, lambda to: original(optimizer, to(gradients), variables, to(rate)))
    groups = _group_by_device(variables)
    if len(groups) < 2:
        return original(optimizer, gradients, variables, rate)
    follows = {id(variable): gradient for variable, gradient in zip(variables, gradients, strict=True)}
    shared = [x for x in map(tensor_of, optimizer.variables) if x is not None and x.dim() == 0]
    before = [x.detach().clone() for x in shared]
    for group in groups:
        for x, value in zip(shared, before, strict=True):  # Nadam's product is updated with every group of variables
            x.detach().copy_(value)
        members = [follows[id(variable)] for variable in group]
        _on_device_of(group[0], lambda to: original(optimizer, list(map(to, members)), group, to(rate)))  # noqa: B023 - called now
    return None


def apply_weight_decay(original: Call, optimizer: Any, args: Any, kwargs: Any) -> Any:
    """Apply weight decay, separately for the weights of each device."""
    groups = _group_by_device(args[0] if args else kwargs["variables"])
    if len(groups) < 2:
        return original(optimizer, *args, **kwargs)
    for group in groups:
        _on_device_of(group[0], lambda to: original(optimizer, group))  # noqa: B023 - called now
    return None


def clip_gradients(original: Call, optimizer: Any, args: Any, kwargs: Any) -> Any:
    """Clip gradients by norms that may combine devices; each gradient stays on its device."""
    gradients = args[0] if args else kwargs["grads"]
    if len(_devices(list(gradients))) < 2:
        return original(optimizer, gradients)
    clipped = _on_device_of(optimizer._trainable_variables[0], lambda to: original(optimizer, gradients))
    return [x if x is None else to_device(x, old.device) for x, old in zip(clipped, gradients, strict=True)]


def _group_by_device(variables: Any) -> list[list[Any]]:
    """Return the variables grouped by device, in order."""
    found: dict[Any, list[Any]] = {}
    for each in variables:
        tensor = tensor_of(each)
        found.setdefault(None if tensor is None else tensor.device, []).append(each)
    return list(found.values())


def _on_device_of(variable: Any, call: Callable[[Callable[[Any], Any]], Any]) -> Any:
    """Compute on the device of a variable, after copying numbers from other devices there."""
    device = tensor_of(variable).device
    before = FORWARD.devices, FORWARD.last_device
    FORWARD.devices, FORWARD.last_device = {device: None}, device
    try:
        with ComputeOn(device, copies=True), AlignDevices():
            return call(lambda x: to_device(x, device) if isinstance(x, torch.Tensor) else x)
    finally:
        FORWARD.devices, FORWARD.last_device = before
