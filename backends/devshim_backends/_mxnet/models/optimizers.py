"""The leaves of trainers and optimizers, and how their state follows the parameters that they train.

Requirements that this module meets:

* Every array of the state follows its parameter, however deeply it is nested; each stays the same object.
* The state is identified by the number of its parameter.  1.9 sorts parameters by names that contain layer numbers, so
  that ``dense10`` comes before ``dense9``.  Here they are sorted numerically, so an equal model made later has the same
  order.
* MXNet counts an optimizer's updates per device number, so that Adam would start from zero on another device: the
  counts move along.
* If a parameter has moved without its state, MXNet's own mechanism copies the state there before the next step.

A `Trainer` has an `Updater` for each device, which stores the states by parameter number, and one `Optimizer`, which
stores the settings and the counts; a few optimizers also store arrays.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import mxnet as mx

from devshim.contract.models import Leaf
from devshim.errors import UnsupportedError
from devshim_backends._mxnet.models import optimizer_step
from devshim_backends._mxnet.models.storage_swap import arrays_in, exchange, native_of_array
from devshim_backends._mxnet.models.traversal import places_of
from devshim_backends._mxnet.native import IS_2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from devshim.contract.backend import Tensor

_PLACES = "_devices" if IS_2 else "_contexts"
_COUNTS = ("_all_index_update_counts", "_index_update_count")


# ---------------------------------------------------------------------- leaves
def of_optimizer(obj: Any) -> Iterator[Leaf]:
    """Yield the state by the numbers of the parameters, then the arrays among the optimizer's own attributes."""
    if isinstance(obj, mx.gluon.Trainer):
        _refuse_elsewhere(obj)
    parameters, numbers = parameters_by_index(obj), numbers_by_index(obj)
    gradients = {id(each) for parameter in parameters.values() for each in parameter._grad or ()}
    for updater in updaters_of(obj):
        for index in sorted(updater.states, key=lambda index: str(numbers.get(index, index)).zfill(9)):
            for path, array in arrays_in(f"state.{numbers.get(index, index)}", updater.states[index]):
                yield _leaf(path, array, parameters.get(index))
    for name, held in settings_of(optimizer_of(obj)).items():
        for index, inside in held.items() if isinstance(held, dict) else [(None, held)]:
            path = name if index is None else f"{name}.{numbers.get(index, index)}"
            for below, array in arrays_in(path, inside):
                if id(array) not in gradients:  # LBSGD (1.9) stores the parameter's own gradient, which moves with it
                    yield _leaf(below, array, parameters.get(index))


def _leaf(path: str, array: Tensor, follows: Any) -> Leaf:
    return Leaf(path, "state", array.detach, exchange(array), array, follows)


def _refuse_elsewhere(trainer: Any) -> None:
    """Refuse a trainer whose state is not in Python, or is on several devices.

    Raises:
        UnsupportedError: The trainer is one of these.
    """
    if trainer._kvstore is not None and trainer._update_on_kvstore:
        raise UnsupportedError(
            "this Trainer updates on a kvstore, which keeps the weights and the state inside and shows them to nobody",
            "make it with update_on_kvstore=False",
        )
    if len(trainer._updaters) > 1:
        told = ", ".join(map(str, getattr(trainer, _PLACES)))
        raise UnsupportedError(
            f"this Trainer was made for replicas on several devices ({told}), with a state on each",
            "make one for a model on one device; ds.replicate gives a model on each",
        )


def updaters_of(obj: Any) -> list[Any]:
    """Return the updaters that store the states: those of a trainer, an updater itself, or an empty list."""
    if isinstance(obj, mx.gluon.Trainer):
        return list(obj._updaters)
    return [obj] if isinstance(obj, mx.optimizer.Updater) else []


def optimizer_of(obj: Any) -> Any:
    """Return the optimizer of a trainer or an updater, which has the settings and counts, or an optimizer itself."""
    if isinstance(obj, mx.gluon.Trainer):
        return obj._optimizer
    return obj.optimizer if isinstance(obj, mx.optimizer.Updater) else obj


def settings_of(optimizer: Any) -> dict[str, Any]:
    """Return an optimizer's attributes without its parameters."""
    return {name: value for name, value in vars(optimizer).items() if name not in ("param_dict", *_COUNTS)}


def parameters_by_index(obj: Any) -> dict[Any, Any]:
    """Return the parameters that are trained, by the index under which their state is stored."""
    if isinstance(obj, mx.gluon.Trainer):
        return dict(enumerate(obj._params))
    return dict(optimizer_of(obj).param_dict)


def numbers_by_index(obj: Any) -> dict[Any, int]:
    """Return each parameter's number: its index, unless 1.9 numbered the layers and then sorted the names as text."""
    parameters = parameters_by_index(obj)
    names = [parameter.name for parameter in parameters.values()]
    order = list(parameters)
    if names == sorted(names):
        order.sort(key=lambda index: _counted(parameters[index].name))
    return {index: number for number, index in enumerate(order)}


def _counted(name: str) -> list[tuple[bool, int, str]]:
    """Return a sort key for a name, by which 9 comes before 10."""
    parts = re.split(r"(\d+)", name)
    return [(not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]


# ---------------------------------------------------------------------- following the parameters
def follow(objects: Iterable[Any], places: Sequence[Any] = ()) -> Callable[[], None]:
    """Make trainers and optimizers continue on their parameters' devices, or on given ones; return an undo function."""
    undo: list[Callable[[], None]] = []
    for obj in {id(each): each for each in objects if each is not None}.values():
        parameters = parameters_by_index(obj)
        if any(len(places_of(parameter)) != 1 for parameter in parameters.values()):
            continue  # replicas, or nothing created yet
        undo.append(_remember(obj))
        if isinstance(obj, mx.gluon.Trainer) and parameters:
            setattr(obj, _PLACES, list(places_of(parameters[0])))
        for updater in updaters_of(obj):
            optimizer_step.settle(updater, parameters.values())
            for index, state in updater.states.items():
                if index in parameters and _is_elsewhere(state, parameters[index]):
                    updater.states_synced[index] = False
        _share_counts(obj, parameters, places)

    def take_back() -> None:
        for each in undo:
            each()

    return take_back


def _remember(obj: Any) -> Callable[[], None]:
    held = [(obj, _PLACES)] if isinstance(obj, mx.gluon.Trainer) else []
    held += [(each, name) for each in updaters_of(obj) for name in ("states_synced", "aggregate_updates")]
    held += [(optimizer_of(obj), name) for name in _COUNTS]
    before = [(each, name, getattr(each, name)) for each, name in held]
    before = [(each, name, dict(old) if name in ("states_synced", _COUNTS[0]) else old) for each, name, old in before]

    def take_back() -> None:
        for each, name, old in before:
            setattr(each, name, old)

    return take_back


def _is_elsewhere(state: Any, parameter: Any) -> bool:
    home = places_of(parameter)[0]
    return any(native_of_array(array) != home for _, array in arrays_in("", state))


def _share_counts(obj: Any, parameters: dict[Any, Any], more: Sequence[Any]) -> None:
    """Share one update count among all devices: each parameter is on only one of them."""
    optimizer = optimizer_of(obj)
    counts = optimizer._all_index_update_counts
    places = [*more, *(place for parameter in parameters.values() for place in places_of(parameter))]
    arrays = [array for updater in updaters_of(obj) for _, array in arrays_in("", updater.states)]
    numbers = {*counts, *(place.device_id for place in [*places, *map(native_of_array, arrays)])}
    optimizer._all_index_update_counts = dict.fromkeys(numbers, optimizer._index_update_count)
