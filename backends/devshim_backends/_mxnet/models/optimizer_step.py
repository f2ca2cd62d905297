"""Patches that let a `Trainer` train a model over several devices.

When a `Trainer` is made and before its first step, Gluon refuses parameters that are not all on the same devices,
because it expects to reduce gradients between replicas. If each parameter is on one device, there is
nothing to reduce. A `Trainer` then works as on one device, except that it cannot update several parameters at the same
time: MXNet's operators for that compute on one device. So the two methods with these checks are replaced when a model
is split for the first time; for all other parameters they behave as before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import mxnet as mx

from devshim_backends._mxnet.internals.native import IS_2
from devshim_backends._mxnet.models.traversal import parameter_devices

if TYPE_CHECKING:
    from collections.abc import Iterable

_CHECK = "_check_devices" if IS_2 else "_check_contexts"
_check, _init_kvstore = getattr(mx.gluon.Trainer, _CHECK), mx.gluon.Trainer._init_kvstore

_SPLIT: WeakSet[Any] = WeakSet()
"""The parameters of models that were split; current devices show which of them are together again."""


def allow_split(parameters: Iterable[Any]) -> None:
    """Let one `Trainer` train these parameters, which are on several devices."""
    _SPLIT.update(parameters)
    setattr(mx.gluon.Trainer, _CHECK, _check_split)
    mx.gluon.Trainer._init_kvstore = _init_kvstore_split


def update_aggregation(updater: Any, parameters: Iterable[Any]) -> None:
    """Let an updater take several parameters together if it normally would and all are on one device."""
    natives = {native for parameter in parameters for native in parameter_devices(parameter)}
    updater.aggregate_updates = type(updater)(updater.optimizer).aggregate_updates and len(natives) < 2


def _is_split(trainer: Any) -> bool:
    """Return True if a trainer's parameters are on several devices, each on exactly one."""
    natives = [parameter_devices(parameter) for parameter in trainer._params if parameter in _SPLIT]
    return (
        len(natives) == len(trainer._params)
        and all(len(each) == 1 for each in natives)
        and len(set(map(str, natives))) > 1
    )


def _check_split(trainer: Any) -> Any:
    return list(parameter_devices(trainer._params[0])) if _is_split(trainer) else _check(trainer)


def _init_kvstore_split(trainer: Any) -> None:
    config = trainer._kvstore_params["kvstore"]
    is_requested = config is not None and (not isinstance(config, str) or "dist" in config)
    if is_requested or trainer._contains_sparse_weight or not _is_split(trainer):
        _init_kvstore(trainer)
        return
    for updater in trainer._updaters:
        update_aggregation(updater, trainer._params)
    trainer._kvstore = trainer._update_on_kvstore = None  # as Gluon does for one device
    trainer._distributed, trainer._kv_initialized = False, True
