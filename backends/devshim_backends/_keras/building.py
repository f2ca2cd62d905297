"""Moving variables that Keras creates late to their device: weights of unbuilt layers, optimizer slots, metrics.

Keras makes variables wherever its framework makes tensors, and some of them only after a symbolic call has ended. So
variables for an object that was placed are moved to its device after the call that made them, by one copy each.

Requirements of this module:

* An unbuilt layer stores the device that it was placed on, until its variables are there.
* A layer that is added to a model moves to the model's device, and a weight that is added to a built layer (for
  example, by LoRA) to the layer's.
* An optimizer's state follows its variables, and the metrics of ``compile`` follow the weights before them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devshim.errors import ArgumentError
from devshim.tensors import activations
from devshim_backends._keras.traversal import is_metric

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.contract.backend import Backend
    from devshim.devices.device import Device
    from devshim_backends._keras.traversal import Contents

__all__ = [
    "add_on_device",
    "move_new_variables",
    "move_states_to_weights",
    "planned_device",
    "store_planned_devices",
]

_PLANNED = "_devshim_planned_device"
"""The attribute of a layer that has yet to make variables: the device that it was placed on."""


def store_planned_devices(contents: Contents, model: Any, where: Callable[[str], Device]) -> Callable[[], None]:
    """Store the devices of a model's unbuilt parts, and return a function that undoes it."""
    before = []
    for path, part in contents.parts(model):
        before.append((part, vars(part).get(_PLANNED)))
        _set_planned(part, None if _is_built(part) else _planned_or_none(where, path))

    def undo() -> None:
        for part, device in before:
            _set_planned(part, device)

    return undo


def planned_device(part: Any) -> Device | None:
    """Return the device that a layer was placed on if it is not built yet; None for any other."""
    found: Device | None = vars(part).get(_PLANNED)
    return found


def move_new_variables(backend: Backend, contents: Contents, model: Any) -> None:
    """Move the variables made since a model was placed to their devices."""
    planned: dict[str, Device] = {}
    for path, part in contents.parts(model):
        device = planned_device(part) or _nearest_planned(planned, path)
        if device is not None:
            planned[path] = device
    if planned:
        for leaf in backend.leaves(model):
            device = _nearest_planned(planned, leaf.path)
            if device is not None and leaf.kind in ("parameter", "buffer"):
                _move_leaf(backend, leaf, device)
        for _, part in contents.parts(model):
            if _has_values(contents, part):
                _set_planned(part, None)
    move_states_to_weights(backend, model)


def add_on_device(backend: Backend, contents: Contents, obj: Any, add: Callable[[], Any]) -> Any:
    """Call a method that adds a weight or layer, and move the new variables to the device of the existing ones."""
    device = planned_device(obj) if is_metric(obj) else None  # `move_new_variables` serves layers that are not built
    device = device or (_one_device(backend, obj) if _is_built(obj) else None)
    result = add()
    if device is None:
        return result
    for leaf in backend.leaves(obj):
        if leaf.follows is None:
            _move_leaf(backend, leaf, device)
    for _, part in contents.parts(obj):
        if not _has_values(contents, part):
            _set_planned(part, device)
    return result


def _one_device(backend: Backend, obj: Any) -> Device | None:
    devices = {backend.device_of(leaf.read()) for leaf in backend.leaves(obj) if leaf.follows is None}
    return devices.pop() if len(devices) == 1 else None


def _is_built(part: Any) -> bool:
    """Return True for a built layer, and for a metric that has variables: some metrics make them late."""
    return bool(part.variables) if is_metric(part) else getattr(part, "built", True)


def _has_values(contents: Contents, part: Any) -> bool:
    return _is_built(part) and all(contents.owner(x.variable) is not None for x in contents.named_variables(part))


def move_states_to_weights(backend: Backend, obj: Any) -> None:
    """Move the states of a model or optimizer to the devices of the weights that they belong to."""
    for leaf in backend.leaves(obj):
        if leaf.kind == "state" and leaf.follows is not None:
            _move_leaf(backend, leaf, backend.device_of(leaf.follows))


def _move_leaf(backend: Backend, leaf: Any, device: Device) -> None:
    x = leaf.read()
    if backend.device_of(x) is not device:
        leaf.write(activations.move_activation(x, device))


def _set_planned(part: Any, device: Device | None) -> None:
    """Set or delete the attribute directly: Keras tracks attributes that are set in the usual way."""
    if device is None:
        vars(part).pop(_PLANNED, None)
    else:
        vars(part)[_PLANNED] = device


def _nearest_planned(planned: dict[str, Device], path: str) -> Device | None:
    """Return the device of the nearest part above a path."""
    while True:
        if path in planned:
            return planned[path]
        if not path:
            return None
        path = path.rpartition(".")[0]


def _planned_or_none(where: Callable[[str], Device], path: str) -> Device | None:
    """Return the device of a part without variables; None if the placement only names leaves."""
    try:
        return where(path)
    except ArgumentError:
        return None
