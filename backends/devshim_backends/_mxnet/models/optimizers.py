"""The leaves of trainers and optimizers, and how their state follows the parameters that they train.

Requirements that this module meets:

* Every array of the state follows its parameter, however deeply it is nested; each stays the same object.
* The state is identified by the number of its parameter.  1.9 sorts parameters by names that contain layer numbers, so
  that ``dense10`` comes before ``dense9``. Here they are sorted numerically, so an equal model made later has the same
  order.
* MXNet counts an optimizer's updates per device number, so that Adam would start from zero on another device: the
  counts move along.
* If a parameter has moved without its state, MXNet's own mechanism copies the state there before the next step.

A `Trainer` has an `Updater` for each device, which stores the states by parameter number, and one `Optimizer`, which
stores the settings and the counts; a few optimizers also store arrays.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any

import mxnet as mx

from devshim.contract.blocks import join_path
from devshim.contract.models import Leaf
from devshim.errors import UnsupportedError
from devshim_backends._mxnet.internals.native import IS_2
from devshim_backends._mxnet.models import optimizer_step
from devshim_backends._mxnet.models.storage_swap import arrays_in, native_device, swap_storage
from devshim_backends._mxnet.models.traversal import parameter_devices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from devshim.contract.backend import Tensor

_DEVICES_ATTRIBUTE = "_devices" if IS_2 else "_contexts"
_COUNTS = ("_all_index_update_counts", "_index_update_count")


# ---------------------------------------------------------------------- leaves
def optimizer_leaves(obj: Any) -> Iterator[Leaf]:
    """Yield the state by the numbers of the parameters, then the arrays among the optimizer's own attributes."""
    if isinstance(obj, mx.gluon.Trainer):
        _refuse_unsupported(obj)
    parameters, numbers = parameters_by_index(obj), numbers_by_index(obj)
    gradients = {id(each) for parameter in parameters.values() for each in parameter._grad or ()}
    for updater in updaters_of(obj):
        for index in sorted(updater.states, key=lambda index: str(numbers.get(index, index)).zfill(9)):
            for path, array in arrays_in(f"state.{numbers.get(index, index)}", updater.states[index]):
                yield _leaf(path, array, parameters.get(index))
    for name, setting in settings_of(optimizer_of(obj)).items():
        for index, value in setting.items() if isinstance(setting, dict) else [("", setting)]:
            for path, array in arrays_in(join_path(name, str(numbers.get(index, index))), value):
                if id(array) not in gradients:  # LBSGD (1.9) stores the parameter's own gradient, which moves with it
                    yield _leaf(path, array, parameters.get(index))


def _leaf(path: str, array: Tensor, follows: Any) -> Leaf:
    return Leaf(path, "state", array.detach, partial(swap_storage, array), array, follows)


def _refuse_unsupported(trainer: Any) -> None:
    """Refuse a trainer whose state is not in Python, or is on several devices.

    Raises:
        UnsupportedError: The trainer is one of these.
    """
    if trainer._kvstore is not None and trainer._update_on_kvstore:
        msg = (
            "this Trainer updates on a kvstore, which stores the weights and the state where Python cannot access them"
        )
        raise UnsupportedError(msg, "make the Trainer with update_on_kvstore=False")
    if len(trainer._updaters) > 1:
        natives = ", ".join(map(str, getattr(trainer, _DEVICES_ATTRIBUTE)))
        msg = f"this Trainer was made for replicas on several devices ({natives}), with a state on each of them"
        raise UnsupportedError(
            msg,
            "make a Trainer for a model on one device; ds.replicate makes a model on each device",
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
        order.sort(key=lambda index: _natural_key(parameters[index].name))
    return {index: number for number, index in enumerate(order)}


def _natural_key(name: str) -> list[tuple[bool, int, str]]:
    """Return a sort key for a name, which orders 9 before 10."""
    parts = re.split(r"(\d+)", name)
    return [(not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]


# ---------------------------------------------------------------------- following the parameters
def follow_parameters(objects: Iterable[Any], natives: Sequence[Any] = ()) -> Callable[[], None]:
    """Make trainers and optimizers continue on their parameters' devices, or on given ones; return an undo function."""
    undo: list[Callable[[], None]] = []
    for obj in {id(each): each for each in objects if each is not None}.values():
        parameters = parameters_by_index(obj)
        if any(len(parameter_devices(parameter)) != 1 for parameter in parameters.values()):
            continue  # replicas, or nothing created yet
        undo.append(_save(obj))
        if isinstance(obj, mx.gluon.Trainer) and parameters:
            setattr(obj, _DEVICES_ATTRIBUTE, list(parameter_devices(parameters[0])))
        for updater in updaters_of(obj):
            optimizer_step.update_aggregation(updater, parameters.values())
            for index, state in updater.states.items():
                if index in parameters and _is_on_other_device(state, parameters[index]):
                    updater.states_synced[index] = False
        _share_update_counts(obj, parameters, natives)

    def restore() -> None:
        for each in undo:
            each()

    return restore


def _save(obj: Any) -> Callable[[], None]:
    """Save all that `follow_parameters` changes, and return a function that restores it."""
    changed = [(obj, _DEVICES_ATTRIBUTE)] if isinstance(obj, mx.gluon.Trainer) else []
    changed += [(each, name) for each in updaters_of(obj) for name in ("states_synced", "aggregate_updates")]
    changed += [(optimizer_of(obj), name) for name in _COUNTS]
    before = [(each, name, getattr(each, name)) for each, name in changed]
    before = [(each, name, dict(old) if name in ("states_synced", _COUNTS[0]) else old) for each, name, old in before]

    def restore() -> None:
        for each, name, old in before:
            setattr(each, name, old)

    return restore


def _is_on_other_device(state: Any, parameter: Any) -> bool:
    native = parameter_devices(parameter)[0]
    return any(native_device(array) != native for _, array in arrays_in("", state))


def _share_update_counts(obj: Any, parameters: dict[Any, Any], more: Sequence[Any]) -> None:
    """Share one update count among all devices: each parameter is on only one of them."""
    optimizer = optimizer_of(obj)
    counts = optimizer._all_index_update_counts
    natives = [*more, *(native for parameter in parameters.values() for native in parameter_devices(parameter))]
    arrays = [array for updater in updaters_of(obj) for _, array in arrays_in("", updater.states)]
    numbers = {*counts, *(native.device_id for native in [*natives, *map(native_device, arrays)])}
    optimizer._all_index_update_counts = dict.fromkeys(numbers, optimizer._index_update_count)
