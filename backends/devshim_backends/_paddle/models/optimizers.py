"""The leaves of optimizers, learning-rate schedulers and gradient scalers.

Requirements that this module meets:

* Every tensor of an optimizer's state follows its parameter: accumulators, which PaddlePaddle stores by the parameter's
  name (by that of its master weight in mixed precision), master weights, LBFGS's lists, and tensors among the settings.
* Powers of beta, which Paddle creates on the host, move along: its kernels read them from the host and from a card.
* A leaf's name contains the parameter's number, which is the same in an equal optimizer, and never the parameter's
  name, which is not.
* The tensor of the learning rate is not a leaf: if it is missing, it is created again from the number
  (``optimizer_step.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import paddle

from devshim.contract.models import Leaf
from devshim.contract.wrapped_optimizers import wrapped_optimizers
from devshim_backends._paddle.devices import core
from devshim_backends._paddle.models.storage_swap import accessors, has_memory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devshim.contract.backend import Tensor

__all__ = ["MASTER", "accumulators_of", "inner_optimizers", "leaves_of", "parameters_of"]

MASTER = "master_weight"
"""The name of the leaf that is a parameter's copy in full precision."""

_NOT_SEARCHED = frozenset({"_accumulators", "_accumulators_holder", "_master_weights", "_learning_rate_map"})
"""Attributes of an optimizer that are not searched: its state, listed by parameters, and the learning rate."""
_PARAMETER_ATTRIBUTES = frozenset({"_parameter_list", "_param_groups", "_params", "_param_dict"})


def leaves_of(obj: Any) -> Iterator[Leaf]:
    """Yield the leaves of an optimizer, a scheduler or a scaler."""
    if isinstance(obj, paddle.optimizer.Optimizer):
        yield from _iter_optimizer("", obj)
        for name, inner in inner_optimizers(obj).items():
            yield from _iter_optimizer(f"{name}.", inner)
        return
    for path, tensor in _iter_tensors("", vars(obj), set()):
        yield _make_leaf(path, tensor, None)


def parameters_of(optimizer: Any) -> list[Tensor]:
    """Return the parameters that an optimizer trains, in their order."""
    found: list[Tensor] = []
    for each in optimizer._parameter_list or ():
        found.extend(each["params"] if isinstance(each, dict) else (each,))
    return found


def inner_optimizers(optimizer: Any) -> dict[str, Any]:
    """Return the optimizers that one wraps (``paddle.incubate.LookAhead``), by their paths."""
    return wrapped_optimizers(optimizer, paddle.optimizer.Optimizer, _NOT_SEARCHED | _PARAMETER_ATTRIBUTES)


def _settings_of(optimizer: Any) -> dict[str, Any]:
    """Return an optimizer's attributes without its state and its parameters."""
    skipped = _NOT_SEARCHED | _PARAMETER_ATTRIBUTES
    return {name: value for name, value in vars(optimizer).items() if name not in skipped}


def accumulators_of(optimizer: Any) -> Iterator[tuple[Any, str, Tensor]]:
    """Yield the parameter of each tensor of the state (None if it was deleted), the tensor's name, and the tensor."""
    named = {parameter.name: parameter for parameter in parameters_of(optimizer)}
    masters = optimizer._master_weights or {}
    for name, master in masters.items():
        yield named.get(name), MASTER, master
        named[master.name] = named.get(name)
    for name, tensors in optimizer._accumulators.items():
        for owner, tensor in tensors.items():
            yield named.get(owner), name, tensor


def _iter_optimizer(prefix: str, optimizer: Any) -> Iterator[Leaf]:
    parameters = parameters_of(optimizer)
    numbers = {id(parameter): i for i, parameter in enumerate(parameters)}
    first = parameters[0] if parameters else None
    seen = set(numbers)
    for parameter, name, tensor in accumulators_of(optimizer):
        seen.add(id(tensor))
        number = numbers.get(id(parameter), len(numbers))
        if has_memory(tensor):
            yield _make_leaf(f"{prefix}state.{number}.{name}", tensor, first if parameter is None else parameter)
    for path, tensor in _iter_tensors(prefix.rstrip("."), _settings_of(optimizer), seen):
        yield _make_leaf(path, tensor, first)


def _make_leaf(path: str, tensor: Tensor, follows: Any) -> Leaf:
    return Leaf(path, "state", *accessors(tensor), tensor, follows)


def _iter_tensors(path: str, container: Any, seen: set[int]) -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor in nested dictionaries, lists, tuples and schedulers, except those already seen."""
    if isinstance(container, core.eager.Tensor):
        if id(container) not in seen and has_memory(container):
            yield path, container
        return
    if isinstance(container, paddle.optimizer.lr.LRScheduler):
        container = vars(container)
    if isinstance(container, dict):
        items = iter(container.items())
    elif isinstance(container, (list, tuple)):
        items = iter(enumerate(container))
    else:
        return
    for key, value in items:
        yield from _iter_tensors(f"{path}.{key}" if path else str(key), value, seen)
