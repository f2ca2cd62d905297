"""The extra state of trainers and optimizers that a checkpoint stores besides their arrays on devices.

Settings, counts and schedules are numbers in the attributes of the optimizer. In the states, a marker replaces every
array that is a leaf. MXNet's own ``save_states`` is a pickle, and numbers parameters in the order in which 1.9 sorts
them; here the numbers are those of the leaves (`optimizers.numbers_by_index`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mxnet as mx
import numpy as np

from devshim.contract.blocks import join_path
from devshim.devices.device import CPU
from devshim.errors import CheckpointError
from devshim_backends._mxnet.creation import MxnetCreation
from devshim_backends._mxnet.models.optimizers import (
    numbers_by_index,
    optimizer_of,
    parameters_by_index,
    settings_of,
    updaters_of,
)
from devshim_backends._mxnet.models.traversal import MODELS, parameter_devices

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from devshim.devices.device import Device

    Forms = Mapping[str, tuple[tuple[int, ...], str]]

_LEAF = {"nd": "(a leaf of mx.nd)", "np": "(a leaf of mx.np)"}
"""The markers for arrays that are saved separately."""
_NO_VALUE = object()


class MxnetExtraState(MxnetCreation):
    """The mixin for settings, counts, and the state of a trainer that has not started yet."""

    def get_extra_state(self, obj: Any) -> Any:
        if isinstance(obj, MODELS):
            return None
        numbers, optimizer = numbers_by_index(obj), optimizer_of(obj)
        states = {index: state for updater in updaters_of(obj) for index, state in updater.states.items()}
        return {
            "class": type(optimizer).__name__,
            "settings": _outline_mapping(settings_of(optimizer), numbers),
            "counts": _renumber(optimizer._index_update_count, numbers),
            "states": _outline_mapping(states, numbers),
            "beside": {name: _outline_mapping(vars(each), {}) for name, each in _stateful_objects(obj).items()},
            "scale": getattr(obj, "_scale", None),
        }

    def set_extra_state(self, obj: Any, state: Any, forms: Forms) -> Callable[[], None]:
        optimizer, undo = optimizer_of(obj), _save(obj)
        try:
            if type(optimizer).__name__ != state["class"]:
                msg = f"it was saved from {state['class']}"
                raise ValueError(msg)
            self._restore(obj, optimizer, state, forms)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            undo()
            msg = f"the file does not match the optimizer {type(optimizer).__name__}: {error}"
            raise CheckpointError(
                msg,
                "load it into an optimizer that was made in the same way, for a model with the same parameters",
            ) from error
        return undo

    def _restore(self, obj: Any, optimizer: Any, extra_state: Any, forms: Forms) -> None:
        indices = {number: index for index, number in numbers_by_index(obj).items()}
        parameters = parameters_by_index(obj)
        devices = {
            index: self.from_native(parameter_devices(each)[0])
            for index, each in parameters.items()
            if parameter_devices(each)
        }

        def fill(path: str, outline: Any) -> Any:
            return _fill(self, path, outline, forms, lambda number: devices.get(indices.get(number, number)) or CPU)

        _set(optimizer, fill("", extra_state["settings"]), indices)
        counts = _renumber(extra_state["counts"], indices)
        optimizer._all_index_update_counts = dict.fromkeys(optimizer._all_index_update_counts, counts)
        optimizer._index_update_count = counts
        for updater in updaters_of(obj):
            states = _renumber(fill("state", extra_state["states"]), indices)
            unknown = states.keys() - parameters.keys() if parameters else ()
            if unknown:
                msg = f"it has the state of parameter {min(unknown)}, which this optimizer does not train"
                raise ValueError(msg)
            updater.states, updater.states_synced = states, dict.fromkeys(states, True)
        objects = _stateful_objects(obj)
        for name, outline in extra_state["beside"].items():
            _set(objects[name], fill(name, outline), {})
        if hasattr(obj, "_scale"):
            obj._scale = extra_state["scale"]


def _stateful_objects(obj: Any) -> dict[str, Any]:
    """Return the objects whose numbers change during training: a schedule, and the scaler of mixed precision."""
    objects = {"scheduler": optimizer_of(obj).lr_scheduler, "scaler": getattr(obj, "_amp_loss_scaler", None)}
    return {name: each for name, each in objects.items() if each is not None}


def _save(obj: Any) -> Callable[[], None]:
    """Save all that `MxnetExtraState.set_extra_state` sets, and return a function that restores it."""
    changed = [optimizer_of(obj), *updaters_of(obj), *_stateful_objects(obj).values()]
    before = [(vars(each), dict(vars(each))) for each in changed]
    scale = getattr(obj, "_scale", None)

    def restore() -> None:
        for attributes, values in before:
            attributes.clear()
            attributes.update(values)
        if hasattr(obj, "_scale"):
            obj._scale = scale

    return restore


def _set(target: Any, values: dict[str, Any], indices: Mapping[Any, Any]) -> None:
    """Set existing attributes to new numbers; equal ones stay, because MXNet checks whether one *is* infinity."""
    attributes = vars(target)
    for name, value in values.items():
        if name not in attributes:
            msg = f"it has the setting {name!r}, which this optimizer does not have"
            raise ValueError(msg)
        new = _renumber(value, indices) if isinstance(value, dict) else value
        if _outline(attributes[name]) != new:
            attributes[name] = new


def _renumber(values: Mapping[Any, Any], numbers: Mapping[Any, Any]) -> dict[Any, Any]:
    return {numbers.get(key, key): value for key, value in values.items()}


# ---------------------------------------------------------------------- outlines
def _outline_mapping(values: Mapping[Any, Any], numbers: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return outlines of values by their names or numbers, without values that have no outline, such as functions."""
    outlines = {numbers.get(key, key): _outline(value, numbers) for key, value in values.items()}
    return {key: outline for key, outline in outlines.items() if outline is not _NO_VALUE}


def _outline(value: Any, numbers: Mapping[Any, Any] | None = None) -> Any:
    """Return a tree of plain values with markers for arrays; `_NO_VALUE` for values that cannot be saved."""
    if isinstance(value, mx.nd.NDArray):
        return _LEAF["np" if isinstance(value, mx.np.ndarray) else "nd"]
    if isinstance(value, dict):
        return _outline_mapping(value, numbers or {})
    if isinstance(value, (list, tuple)):
        outlines = [_outline(each) for each in value]
        return _NO_VALUE if any(each is _NO_VALUE for each in outlines) else type(value)(outlines)
    return value if value is None or isinstance(value, (bool, int, float, str, np.generic)) else _NO_VALUE


def _fill(backend: MxnetCreation, path: str, outline: Any, forms: Forms, device_of: Callable[[Any], Device]) -> Any:
    """Rebuild the value of an outline, with a new array of the given form per marker, on the parameter's device."""
    if isinstance(outline, str) and outline in _LEAF.values():
        shape, dtype = forms[path]
        numbers = [int(part) for part in path.split(".") if part.isdigit()]
        x = backend.zeros(shape, backend.dtype(dtype), device_of(numbers[0] if numbers else None))
        return x if outline == _LEAF["np"] else x.as_nd_ndarray()

    def fill(key: object, value: Any) -> Any:
        return _fill(backend, join_path(path, str(key)), value, forms, device_of)

    if isinstance(outline, dict):
        return {key: fill(key, value) for key, value in outline.items()}
    if isinstance(outline, (list, tuple)):
        return type(outline)(fill(i, value) for i, value in enumerate(outline))
    return outline
