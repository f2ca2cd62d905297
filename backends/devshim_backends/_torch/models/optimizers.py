"""The leaves of optimizers, learning-rate schedulers and gradient scalers.

Requirements of this module:

* Every tensor of an optimizer's state follows its parameter, with any name and at any depth (LBFGS
  stores lists of tensors); each stays the same object.
* A tensor that PyTorch itself keeps on the host stays there: ``step`` (and NAdam's ``mu_product``), unless the
  optimizer is ``capturable`` or ``fused``, and a learning rate that is a 0-d host tensor. The same rule is in
  ``Optimizer.load_state_dict``.
* The state of an optimizer that another one wraps (``Lookahead(AdamW(...))``) is state of the wrapper.
"""

from __future__ import annotations

import copy
import inspect
from typing import TYPE_CHECKING, Any

import torch

from devshim.contract.blocks import join_path
from devshim.contract.models import Leaf
from devshim.contract.wrapped_optimizers import wrapped_optimizers
from devshim.errors import UnsupportedError
from devshim_backends._torch.devices import is_host_scalar
from devshim_backends._torch.models.storage_swap import data_setter, require_movable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from devshim.contract.backend import Tensor

OTHER_CLASSES = (torch.optim.lr_scheduler.LRScheduler, torch.amp.GradScaler, torch.Generator)
"""Classes that can be placed besides modules and optimizers; a generator is accepted only to be refused clearly."""

HOST_COUNTERS = frozenset({"step", "mu_product"})
"""Scalars of the state that ``torch.optim`` creates on the host unless they are requested on the device."""

_SEARCHED_ELSEWHERE = frozenset({"state", "param_groups"})
"""The attributes of an optimizer that are large, and contain tensors and settings only."""


def leaves_of_optimizer(optimizer: Any) -> Iterator[Leaf]:
    """Yield the state, by the parameters' numbers in ``state_dict``, then tensors among the groups' settings.

    The optimizers that it wraps follow. A wrapper can have the settings, or the state, of the one inside it as its own.
    """
    seen: set[int] = set()
    for prefix, each in with_inner(optimizer):
        for path, tensor, follows in _tensors_of_optimizer(each):
            if id(tensor) not in seen:
                seen.add(id(tensor))
                yield _leaf(join_path(prefix, path), tensor, follows)


def with_inner(optimizer: Any) -> list[tuple[str, Any]]:
    """Return an optimizer and those that it wraps, with their paths."""
    inner = wrapped_optimizers(optimizer, torch.optim.Optimizer, _SEARCHED_ELSEWHERE)
    return [("", optimizer), *inner.items()]


def _tensors_of_optimizer(optimizer: Any) -> Iterator[tuple[str, Tensor, Any]]:
    """Yield the path of each tensor of an optimizer's own state and settings, the tensor, and what it follows."""
    groups: dict[Tensor, Any] = {}
    numbers: dict[Tensor, int] = {}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            numbers[parameter] = len(numbers)
            groups[parameter] = group
    for key, state in optimizer.state.items():
        follows = key if isinstance(key, torch.Tensor) else None
        # ASGD always creates its counts on the device of its parameters.
        on_device = _on_device(groups.get(key, {})) or isinstance(optimizer, torch.optim.ASGD)
        for path, tensor in _tensors(f"state.{numbers.get(key, key if follows is None else len(numbers))}", state):
            if on_device or not (path.rpartition(".")[2] in HOST_COUNTERS and is_host_scalar(tensor)):
                yield path, tensor, follows
    for i, group in enumerate(optimizer.param_groups):
        settings = {name: value for name, value in group.items() if name != "params"}
        follows = group["params"][0] if group["params"] else None
        for path, tensor in _tensors(f"param_groups.{i}", settings):
            if _on_device(group) or not is_host_scalar(tensor):
                yield path, tensor, follows


def leaves_of_other(obj: Any) -> Iterator[Leaf]:
    """Yield the tensors in the attributes of a scheduler (and its inner schedulers) or scaler; a generator has none.

    A scaler's tensors are on the device of the losses; a scheduler's host tensors stay on the host.
    """
    if isinstance(obj, torch.Generator):
        return
    attributes = dict(vars(obj))
    scaler = isinstance(obj, torch.amp.GradScaler)
    if scaler and obj.is_enabled():  # key its optimizers by order, not by address
        attributes["_per_optimizer_states"] = list(obj._per_optimizer_states.values())
    for path, tensor in _tensors("", attributes):
        if scaler or not is_host_scalar(tensor):
            yield _leaf(path, tensor, None)


def require_complete(objects: Sequence[Any]) -> None:
    """Refuse to copy an optimizer without its model, or a scheduler without its optimizer.

    Raises:
        UnsupportedError: The copy would train parameters that no copied model has.
    """
    copied = {id(p) for obj in objects if isinstance(obj, torch.nn.Module) for p in obj.parameters()}
    copied |= {id(obj) for obj in objects}
    for obj in objects:
        # The attribute `optimizer` of a scheduler is its optimizer; that of a wrapper is copied with the wrapper.
        optimizer = obj if isinstance(obj, torch.optim.Optimizer) else getattr(obj, "optimizer", obj)
        trained = [p for group in getattr(optimizer, "param_groups", ()) for p in group["params"]]
        if any(id(each) not in copied for each in (optimizer, *trained)):
            msg = f"a copy of this {type(obj).__name__} alone would train copies of parameters that no model has"
            raise UnsupportedError(msg, "copy it together with its model: ds.copy([model, optimizer], device)")


def complete_copy(optimizer: Any, memo: dict[int, Any]) -> None:
    """Give the copy of an optimizer the attributes that PyTorch's ``deepcopy`` omits, such as the optimizers inside it.

    A method in an attribute is omitted, too: it is a scheduler's, and calls the optimizer that was copied.

    Args:
        optimizer: An optimizer.
        memo: That of the ``deepcopy``, with the copy of the optimizer.
    """
    for _, each in with_inner(optimizer):
        new = memo.get(id(each))
        if new is None or type(each).__getstate__ is not torch.optim.Optimizer.__getstate__:
            continue
        for name, value in list(vars(each).items()):
            if name not in vars(new) and not inspect.isroutine(value):
                setattr(new, name, copy.deepcopy(value, memo))


def _on_device(group: Any) -> bool:
    """Return True if an optimizer needs its counts on the device of its parameters."""
    return bool(group.get("capturable") or group.get("fused"))


def _leaf(path: str, tensor: Tensor, follows: Any) -> Leaf:
    require_movable(path, tensor)
    return Leaf(path, "state", tensor.detach, data_setter(tensor), tensor, follows)


def _tensors(path: str, state: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor in nested dictionaries, lists, tuples and schedulers, but not inside an optimizer."""
    if isinstance(state, torch.optim.lr_scheduler.LRScheduler):
        state = vars(state)
    items: Iterable[tuple[object, Any]] = ()
    if isinstance(state, torch.Tensor):
        if not isinstance(state, torch.nn.Parameter):
            yield path, state
    elif isinstance(state, dict):
        items = state.items()
    elif isinstance(state, (list, tuple)):
        items = enumerate(state)
    for key, value in items:
        yield from _tensors(join_path(path, key), value)
