"""What trainers and optimizers hold on devices, and how they follow the parameters they train.

Requirements this module answers:

* Every array of the state follows its parameter, however deep it is nested; each stays the same object.
* The state is told by the number of its parameter.  1.9 sorts parameters by names in which it numbers layers, so that
  ``dense10`` comes before ``dense9``: here they are counted as the numbers say, the same for an equal model made later.
* MXNet counts an optimizer's updates by the number of the device, so that on another one Adam would begin anew: the
  counts go along.
* State whose parameter has moved without it is brought there by MXNet's own means before the next step.

A `Trainer` has an `Updater` for each device, with the states by the parameters' numbers, and one `Optimizer`, with the
settings and the counts; a few optimizers keep arrays, too.
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


# ---------------------------------------------------------------------- what they hold
def of_optimizer(whole: Any) -> Iterator[Leaf]:
    """The state by the numbers of the parameters, then arrays among the optimizer's own attributes."""
    if isinstance(whole, mx.gluon.Trainer):
        _refuse_elsewhere(whole)
    parameters, numbers = parameters_by_index(whole), numbers_by_index(whole)
    gradients = {id(each) for parameter in parameters.values() for each in parameter._grad or ()}
    for updater in updaters_of(whole):
        for index in sorted(updater.states, key=lambda index: str(numbers.get(index, index)).zfill(9)):
            for path, array in arrays_in(f"state.{numbers.get(index, index)}", updater.states[index]):
                yield _leaf(path, array, parameters.get(index))
    for name, held in settings_of(optimizer_of(whole)).items():
        for index, inside in held.items() if isinstance(held, dict) else [(None, held)]:
            path = name if index is None else f"{name}.{numbers.get(index, index)}"
            for below, array in arrays_in(path, inside):
                if id(array) not in gradients:  # LBSGD (1.9) keeps the parameter's own, which moves with it
                    yield _leaf(below, array, parameters.get(index))


def _leaf(path: str, array: Tensor, beside: Any) -> Leaf:
    return Leaf(path, "state", array.detach, exchange(array), array, beside)


def _refuse_elsewhere(trainer: Any) -> None:
    """Refuse a trainer whose state is not in Python, or on several devices.

    Raises:
        UnsupportedError: It is one.
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


def updaters_of(whole: Any) -> list[Any]:
    """Return what holds the states: of a trainer, of itself, or none."""
    if isinstance(whole, mx.gluon.Trainer):
        return list(whole._updaters)
    return [whole] if isinstance(whole, mx.optimizer.Updater) else []


def optimizer_of(whole: Any) -> Any:
    """Return the settings and counts of a trainer or an updater, or an optimizer itself."""
    if isinstance(whole, mx.gluon.Trainer):
        return whole._optimizer
    return whole.optimizer if isinstance(whole, mx.optimizer.Updater) else whole


def settings_of(optimizer: Any) -> dict[str, Any]:
    """Return an optimizer's attributes without its parameters."""
    return {name: value for name, value in vars(optimizer).items() if name not in ("param_dict", *_COUNTS)}


def parameters_by_index(whole: Any) -> dict[Any, Any]:
    """Return the parameters that are trained, by the index under which their state is kept."""
    if isinstance(whole, mx.gluon.Trainer):
        return dict(enumerate(whole._params))
    return dict(optimizer_of(whole).param_dict)


def numbers_by_index(whole: Any) -> dict[Any, int]:
    """Return the number of each parameter: its index, but for layers that 1.9 has numbered and then sorted as text."""
    parameters = parameters_by_index(whole)
    names = [parameter.name for parameter in parameters.values()]
    order = list(parameters)
    if names == sorted(names):
        order.sort(key=lambda index: _counted(parameters[index].name))
    return {index: number for number, index in enumerate(order)}


def _counted(name: str) -> list[tuple[bool, int, str]]:
    """A name as a key by which 9 comes before 10."""
    parts = re.split(r"(\d+)", name)
    return [(not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]


# ---------------------------------------------------------------------- how they follow
def follow(wholes: Iterable[Any], places: Sequence[Any] = ()) -> Callable[[], None]:
    """Have trainers and optimizers go on where their parameters are now, or on devices; returns what takes it back."""
    undo: list[Callable[[], None]] = []
    for whole in {id(each): each for each in wholes if each is not None}.values():
        parameters = parameters_by_index(whole)
        if any(len(places_of(parameter)) != 1 for parameter in parameters.values()):
            continue  # replicas, or nothing yet
        undo.append(_remember(whole))
        if isinstance(whole, mx.gluon.Trainer) and parameters:
            setattr(whole, _PLACES, list(places_of(parameters[0])))
        for updater in updaters_of(whole):
            optimizer_step.settle(updater, parameters.values())
            for index, state in updater.states.items():
                if index in parameters and _is_elsewhere(state, parameters[index]):
                    updater.states_synced[index] = False
        _share_counts(whole, parameters, places)

    def take_back() -> None:
        for each in undo:
            each()

    return take_back


def _remember(whole: Any) -> Callable[[], None]:
    held = [(whole, _PLACES)] if isinstance(whole, mx.gluon.Trainer) else []
    held += [(each, name) for each in updaters_of(whole) for name in ("states_synced", "aggregate_updates")]
    held += [(optimizer_of(whole), name) for name in _COUNTS]
    before = [(each, name, getattr(each, name)) for each, name in held]
    before = [(each, name, dict(old) if name in ("states_synced", _COUNTS[0]) else old) for each, name, old in before]

    def take_back() -> None:
        for each, name, old in before:
            setattr(each, name, old)

    return take_back


def _is_elsewhere(state: Any, parameter: Any) -> bool:
    home = places_of(parameter)[0]
    return any(native_of_array(array) != home for _, array in arrays_in("", state))


def _share_counts(whole: Any, parameters: dict[Any, Any], more: Sequence[Any]) -> None:
    """Count updates once, whatever device they are on: each parameter is on one alone."""
    optimizer = optimizer_of(whole)
    counts = optimizer._all_index_update_counts
    places = [*more, *(place for parameter in parameters.values() for place in places_of(parameter))]
    arrays = [array for updater in updaters_of(whole) for _, array in arrays_in("", updater.states)]
    numbers = {*counts, *(place.device_id for place in [*places, *map(native_of_array, arrays)])}
    optimizer._all_index_update_counts = dict.fromkeys(numbers, optimizer._index_update_count)
