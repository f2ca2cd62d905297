"""The extra state of trainers and optimizers that a checkpoint stores besides their arrays on devices.

Settings, counts and schedules are numbers in the attributes of the optimizer.  In the states, a marker replaces every
array that is a leaf.  MXNet's own ``save_states`` is a pickle, and numbers parameters in the order in which 1.9 sorts
them; here the numbers are those of the leaves (`optimizers.numbers_by_index`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mxnet as mx
import numpy as np

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
from devshim_backends._mxnet.models.traversal import MODELS, places_of

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
            "settings": _outlined(settings_of(optimizer), numbers),
            "counts": _renumbered(optimizer._index_update_count, numbers),
            "states": _outlined(states, numbers),
            "beside": {name: _outlined(vars(each), {}) for name, each in _beside(obj).items()},
            "scale": getattr(obj, "_scale", None),
        }

    def set_extra_state(self, obj: Any, state: Any, forms: Forms) -> Callable[[], None]:
        optimizer, undo = optimizer_of(obj), _remember(obj)
        try:
            if type(optimizer).__name__ != state["class"]:
                raise ValueError(f"it is of a {state['class']}")
            self._restore(obj, optimizer, state, forms)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            undo()
            raise CheckpointError(
                f"the file does not fit the {type(optimizer).__name__}: {error}",
                "load it into one made in the same way, for a model with the same parameters",
            ) from error
        return undo

    def _restore(self, obj: Any, optimizer: Any, extra_state: Any, forms: Forms) -> None:
        indices = {number: index for index, number in numbers_by_index(obj).items()}
        parameters = parameters_by_index(obj)
        homes = {index: self.from_native(places_of(each)[0]) for index, each in parameters.items() if places_of(each)}

        def filled(path: str, outline: Any) -> Any:
            return _filled(self, path, outline, forms, lambda number: homes.get(indices.get(number, number)) or CPU)

        _set(optimizer, filled("", extra_state["settings"]), indices)
        counts = _renumbered(extra_state["counts"], indices)
        optimizer._all_index_update_counts = dict.fromkeys(optimizer._all_index_update_counts, counts)
        optimizer._index_update_count = counts
        for updater in updaters_of(obj):
            states = _renumbered(filled("state", extra_state["states"]), indices)
            unknown = states.keys() - parameters.keys() if parameters else ()
            if unknown:
                raise ValueError(f"it has state of a parameter {min(unknown)}, which is not trained here")
            updater.states, updater.states_synced = states, dict.fromkeys(states, True)
        beside = _beside(obj)
        for name, outline in extra_state["beside"].items():
            _set(beside[name], filled(name, outline), {})
        if hasattr(obj, "_scale"):
            obj._scale = extra_state["scale"]


def _beside(obj: Any) -> dict[str, Any]:
    """Return the objects whose numbers change during training: a schedule, and the scaler of mixed precision."""
    found = {"scheduler": optimizer_of(obj).lr_scheduler, "scaler": getattr(obj, "_amp_loss_scaler", None)}
    return {name: each for name, each in found.items() if each is not None}


def _remember(obj: Any) -> Callable[[], None]:
    """Save all that `MxnetExtraState.set_extra_state` sets, and return a function that restores it."""
    held = [optimizer_of(obj), *updaters_of(obj), *_beside(obj).values()]
    before = [(vars(each), dict(vars(each))) for each in held]
    scale = getattr(obj, "_scale", None)

    def take_back() -> None:
        for own, values in before:
            own.clear()
            own.update(values)
        if hasattr(obj, "_scale"):
            obj._scale = scale

    return take_back


def _set(target: Any, values: dict[str, Any], indices: Mapping[Any, Any]) -> None:
    """Set existing attributes to new numbers; equal ones stay, because MXNet checks whether one *is* infinity."""
    own = vars(target)
    for name, value in values.items():
        if name not in own:
            raise ValueError(f"it has a setting {name!r}, which this one lacks")
        new = _renumbered(value, indices) if isinstance(value, dict) else value
        if _outline(own[name]) != new:
            own[name] = new


def _renumbered(held: Mapping[Any, Any], numbers: Mapping[Any, Any]) -> dict[Any, Any]:
    return {numbers.get(key, key): value for key, value in held.items()}


# ---------------------------------------------------------------------- outlines
def _outlined(held: Mapping[Any, Any], numbers: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return outlines of values by their names or numbers, without values that have no outline, such as functions."""
    found = {numbers.get(key, key): _outline(value, numbers) for key, value in held.items()}
    return {key: value for key, value in found.items() if value is not _NO_VALUE}


def _outline(held: Any, numbers: Mapping[Any, Any] | None = None) -> Any:
    """Return a tree of plain values with markers for arrays; `_NO_VALUE` for what cannot be saved."""
    if isinstance(held, mx.nd.NDArray):
        return _LEAF["np" if isinstance(held, mx.np.ndarray) else "nd"]
    if isinstance(held, dict):
        return _outlined(held, numbers or {})
    if isinstance(held, (list, tuple)):
        inside = [_outline(value) for value in held]
        return _NO_VALUE if any(value is _NO_VALUE for value in inside) else type(held)(inside)
    return held if held is None or isinstance(held, (bool, int, float, str, np.generic)) else _NO_VALUE


def _filled(backend: MxnetCreation, path: str, outline: Any, forms: Forms, home: Callable[[Any], Device]) -> Any:
    """Rebuild the value of an outline, with a new array of the given form per marker, on the parameter's device."""
    if isinstance(outline, str) and outline in _LEAF.values():
        shape, dtype = forms[path]
        numbers = [int(part) for part in path.split(".") if part.isdigit()]
        made = backend.zeros(shape, backend.dtype(dtype), home(numbers[0] if numbers else None))
        return made if outline == _LEAF["np"] else made.as_nd_ndarray()
    if isinstance(outline, dict):
        return {key: _filled(backend, _below(path, key), value, forms, home) for key, value in outline.items()}
    if isinstance(outline, (list, tuple)):
        return type(outline)(_filled(backend, _below(path, i), value, forms, home) for i, value in enumerate(outline))
    return outline


def _below(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)
