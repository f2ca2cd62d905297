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
from devshim_backends._torch.models.align_devices import RUN, Meeting, carry
from devshim_backends._torch.models.keras_scopes import Within, value_of
from devshim_backends._torch.models.keras_traversal import CONTENTS, first_device_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.contract.backend import Backend

    Call = Callable[..., Any]

__all__ = ["called", "clipped", "decayed", "settle_spans", "spans", "updated"]

_SPAN = "_devshim_span"
"""The attribute of a layer whose weights are on several devices; it contains these devices."""


def settle_spans(backend: Backend, model: Any) -> Callable[[], None]:
    """Mark the layers of a model that are on several devices, and return a function that undoes it.

    Raises:
        UnsupportedError: A layer's own weights would be on several devices.
    """
    parts = list(CONTENTS.parts(model))
    before = [(part, vars(part).get(_SPAN)) for _, part in parts]
    wanted = []
    for path, part in parts:
        own = _devices([CONTENTS.owner(each.variable) for each in CONTENTS.named_variables(part)])
        if len(own) > 1:
            told = " and ".join(str(backend.from_native(device)) for device in own)
            raise UnsupportedError(
                f"the weights of {path or 'the layer'} ({type(part).__name__}) would be on {told}, but it "
                "uses all of them in the same operator",
                "give all weights of a layer one device, such as Placement({'dense': 'gpu:0'}) by the layer's name",
            )
        below = [
            CONTENTS.owner(each.variable) for _, each in CONTENTS.parts(part) for each in CONTENTS.named_variables(each)
        ]
        found = _devices(below)
        wanted.append((part, found if len(found) > 1 else None))

    def undo() -> None:
        for part, devices in before:
            _note(part, devices)

    for part, devices in wanted:
        _note(part, devices)
    return undo


def spans(layer: Any) -> bool:
    """Return True for a layer whose weights are on several devices."""
    return _SPAN in vars(layer)


def _note(part: Any, devices: dict[Any, None] | None) -> None:
    """Set or delete the mark directly: Keras tracks attributes that are set in the usual way."""
    if devices is None:
        vars(part).pop(_SPAN, None)
    else:
        vars(part)[_SPAN] = devices


def _devices(tensors: list[Any]) -> dict[Any, None]:
    return {tensor.device: None for tensor in tensors if tensor is not None}


# ---------------------------------------------------------------------- layers
def called(theirs: Call, layer: Any, args: Any, kwargs: Any) -> Any:
    """Call a layer that is on several devices, or that is inside such a layer."""
    if spans(layer):
        return _spanning(theirs, layer, args, kwargs)
    device = first_device_of(layer) or RUN.last
    if device is None:  # a layer without weights that comes before all others
        return theirs(layer, *args, **kwargs)
    RUN.ran(device)
    args, kwargs = pytree.tree_map_only(torch.Tensor, lambda x: carry(x, device), (args, kwargs))
    with Within(device, carries=False):
        return theirs(layer, *args, **kwargs)


def _spanning(theirs: Call, layer: Any, args: Any, kwargs: Any) -> Any:
    if RUN.devices is not None:
        with Within(None, carries=False):
            return theirs(layer, *args, **kwargs)
    RUN.devices = found = vars(layer)[_SPAN]
    try:
        with Within(None, carries=False), Meeting():
            result = theirs(layer, *args, **kwargs)
        last = RUN.last
        return pytree.tree_map_only(torch.Tensor, lambda x: carry(x, last) if x.device in found else x, result)
    finally:
        RUN.devices = RUN.last = None


# ---------------------------------------------------------------------- optimizers
def updated(theirs: Call, optimizer: Any, args: Any, kwargs: Any) -> Any:
    """Update variables, separately for each device."""
    gradients, variables, rate = args
    if not isinstance(variables, (list, tuple)):
        if not _are_apart(optimizer._trainable_variables):
            return theirs(optimizer, gradients, variables, rate)
        return _within(variables, lambda to: theirs(optimizer, to(gradients), variables, to(rate)))
    groups = _groups(variables)
    if len(groups) < 2:
        return theirs(optimizer, gradients, variables, rate)
    follows = {id(variable): gradient for variable, gradient in zip(variables, gradients, strict=True)}
    shared = [x for x in map(value_of, optimizer.variables) if x is not None and x.dim() == 0]
    before = [x.detach().clone() for x in shared]
    for group in groups:
        for x, value in zip(shared, before, strict=True):  # Nadam's product is updated with every group of variables
            x.detach().copy_(value)
        its = [follows[id(variable)] for variable in group]
        _within(group[0], lambda to: theirs(optimizer, list(map(to, its)), group, to(rate)))  # noqa: B023 - called now
    return None


def decayed(theirs: Call, optimizer: Any, args: Any, kwargs: Any) -> Any:
    """Apply weight decay, separately for the weights of each device."""
    groups = _groups(args[0] if args else kwargs["variables"])
    if len(groups) < 2:
        return theirs(optimizer, *args, **kwargs)
    for group in groups:
        _within(group[0], lambda to: theirs(optimizer, group))  # noqa: B023 - called now
    return None


def clipped(theirs: Call, optimizer: Any, args: Any, kwargs: Any) -> Any:
    """Clip gradients by norms that may combine devices; each gradient stays on its device."""
    gradients = args[0] if args else kwargs["grads"]
    if len(_devices(list(gradients))) < 2:
        return theirs(optimizer, gradients)
    made = _within(optimizer._trainable_variables[0], lambda to: theirs(optimizer, gradients))
    return [x if x is None else carry(x, old.device) for x, old in zip(made, gradients, strict=True)]


def _groups(variables: Any) -> list[list[Any]]:
    """Return the variables grouped by device, in order."""
    found: dict[Any, list[Any]] = {}
    for each in variables:
        tensor = value_of(each)
        found.setdefault(None if tensor is None else tensor.device, []).append(each)
    return list(found.values())


def _are_apart(variables: Any) -> bool:
    return len(_groups(variables)) > 1


def _within(variable: Any, call: Callable[[Callable[[Any], Any]], Any]) -> Any:
    """Compute on the device of a variable, to which numbers from other devices are copied."""
    device = value_of(variable).device
    before = RUN.devices, RUN.last
    RUN.devices, RUN.last = {device: None}, device
    try:
        with Within(device, carries=True), Meeting():
            return call(lambda x: carry(x, device) if isinstance(x, torch.Tensor) else x)
    finally:
        RUN.devices, RUN.last = before
