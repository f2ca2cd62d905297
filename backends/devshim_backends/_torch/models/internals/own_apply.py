"""Modules that move more than their parameters and buffers, or note their device: metrics, and modules of Lightning.

The metrics of torchmetrics keep tensors in plain attributes, and override ``_apply``, which ``Module.to`` calls. All
such tensors are leaves here, but not part of a checkpoint. Where the data of one cannot be replaced, as it has a graph
or is sparse, the module gets another tensor instead. Modules of Lightning override ``to``, to note the device in an
attribute, as torchmetrics does.

The methods of these modules are not called: they could fail after half of a move, or replace parameters.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from devshim.contract.blocks import join_path
from devshim.contract.models import Leaf
from devshim.errors import UnsupportedError
from devshim_backends._torch.models.storage_swap import leaves_of_tensor
from devshim_backends._torch.models.traversal import devices_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from devshim.contract.backend import Tensor

_SEARCHED = frozenset({"_parameters", "_buffers", "_modules"})
"""The attributes of a module whose tensors are found elsewhere."""
_NOTES = ("device", "_device")
"""The attributes in which such modules note their device."""


def _overrides(cls: type, name: str) -> bool:
    """Return True if a class outside of PyTorch defines a method; PyTorch's own ones move only what it registers."""
    if getattr(cls, name) is getattr(torch.nn.Module, name):
        return False
    owner = next(each for each in cls.__mro__ if name in vars(each))
    return owner.__module__.partition(".")[0] != "torch"


def moves_more(module: Any) -> bool:
    """Return True if a module's class moves tensors in its plain attributes."""
    return _overrides(type(module), "_apply")


def plain_leaves(prefix: str, module: Any, known: set[int]) -> Iterator[Leaf]:
    """Yield the leaves of the tensors in a module's plain attributes.

    Args:
        prefix: The path of the module.
        module: A module of which `moves_more` is True.
        known: The addresses of the model's tensors that are leaves already. It grows.

    Raises:
        UnsupportedError: A tensor with a graph, or one that consists of others, is in a tuple.
    """
    for path, tensor, slots in _plain_tensors(module, known):
        known.add(id(tensor))
        full = join_path(prefix, path)
        if _is_replaceable(tensor):
            yield from leaves_of_tensor(full, "unsaved", tensor)
        elif None in slots:
            msg = f"{full} is in a tuple, where no other tensor can take its place"
            raise UnsupportedError(msg, "keep it in a list, or detach it first")
        else:
            yield Leaf(full, "unsaved", partial(_same, tensor), partial(_fill, slots), tensor)


def _plain_tensors(module: Any, known: set[int]) -> list[tuple[str, Tensor, list[Any]]]:
    """Return the path of each tensor, the tensor, and a function for each place where it is, which puts another there.

    A place in a tuple has None instead of a function.
    """
    found: dict[int, tuple[str, Tensor, list[Any]]] = {}
    seen: set[int] = set()
    pending = [each for each in _members(vars(module)) if each[0] not in _SEARCHED]
    for path, value, put in pending:  # which grows
        if isinstance(value, torch.Tensor):
            if id(value) not in known and not value.is_meta:
                found.setdefault(id(value), (path, value, []))[2].append(put)
        elif isinstance(value, (dict, list, tuple)) and id(value) not in seen:
            seen.add(id(value))
            pending += [(join_path(path, key), each, put) for key, each, put in _members(value)]
    return list(found.values())


def _members(value: Any) -> list[tuple[Any, Any, Any]]:
    """Return the key, the member and the function that replaces it; a subclass's own code does not run."""
    if isinstance(value, dict):
        return [(key, each, partial(dict.__setitem__, value, key)) for key, each in dict.items(value)]
    if isinstance(value, list):
        return [(i, each, partial(list.__setitem__, value, i)) for i, each in enumerate(list.__iter__(value))]
    return [(i, each, None) for i, each in enumerate(tuple.__iter__(value))]


def _is_replaceable(x: Tensor) -> bool:
    """Return True for a tensor in memory that is not the result of a computation, and not made of other tensors."""
    if not x.is_leaf or is_traceable_wrapper_subclass(x):
        return False
    return x.layout is torch.strided and not x.is_quantized and not x.is_nested


def _same(tensor: Tensor) -> Tensor:
    return tensor


def _fill(slots: list[Any], new: Tensor) -> None:
    for put in slots:
        put(new)


def all_devices_of(module: Any) -> list[Any]:
    """Return the devices of all tensors in a module and its submodules, also those in plain attributes."""
    found = devices_of(module)
    for each in filter(moves_more, module.modules()):
        found.update((x.device, None) for _, x, _ in _plain_tensors(each, set()))
    return list(found)


def notes_of(module: Any) -> dict[str, torch.device]:
    """Return the attributes in which a module notes its device, if it overrides a method by which modules move."""
    if not moves_more(module) and not _overrides(type(module), "to"):
        return {}
    found = {name: vars(module).get(name) for name in _NOTES}
    return {name: x for name, x in found.items() if isinstance(x, torch.device)}


def note_device(module: Any, device: Any) -> Callable[[], None]:
    """Change what a module notes of its device; return a function that undoes it.

    Args:
        module: A module that notes its device.
        device: The native device on which its tensors are.
    """
    before = notes_of(module)
    vars(module).update(dict.fromkeys(before, device))
    return lambda: vars(module).update(before)
