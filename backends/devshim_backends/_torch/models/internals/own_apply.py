"""Modules that move more than their parameters and buffers, or note their device: metrics, and modules of Lightning.

The metrics of torchmetrics keep tensors in plain attributes, and override ``_apply``, which ``Module.to`` calls. All
such tensors are leaves here, but not part of a checkpoint. The module gets other tensors instead of them, as from its
own method, because the program may have them, too: a metric keeps the tensors that it was given, and the result that it
returned. A tensor that is trained stays the same object, for its optimizer. Modules of Lightning override ``to``, to
note the device in an attribute, as torchmetrics does.

The methods of these modules are not called: they could fail after half of a move, or replace parameters.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from devshim.contract.blocks import join_path
from devshim.contract.models import Leaf
from devshim_backends._torch.models.storage_swap import leaves_of_tensor
from devshim_backends._torch.models.traversal import devices_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from devshim.contract.backend import Tensor

    Put = Callable[[Any], object]

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
    """
    for path, tensor, puts in _plain_tensors(module, known):
        full = join_path(prefix, path)
        if _is_trained(tensor):
            known.add(id(tensor))
            yield from leaves_of_tensor(full, "unsaved", tensor)
        else:
            yield Leaf(full, "unsaved", partial(_same, tensor), partial(_fill, puts), tensor)


def _plain_tensors(module: Any, known: set[int]) -> list[tuple[str, Tensor, list[Put]]]:
    """Return the path of each tensor, the tensor, and a function for each place where it is, which puts another there.

    A subclass's own code does not run.
    """
    found: dict[int, tuple[str, Tensor, list[Put]]] = {}
    seen: dict[int, _Container | None] = {}
    pending = [each for each in _members(vars(module)) if each[0] not in _SEARCHED]
    for path, value, put in pending:  # which grows
        if isinstance(value, torch.Tensor):
            if id(value) not in known and not value.is_meta:
                found.setdefault(id(value), (path, value, []))[2].append(put)
        elif isinstance(value, (dict, list, tuple)):
            if id(value) not in seen:
                holder = _Container(value) if type(value) in (dict, list) or isinstance(value, tuple) else None
                seen[id(value)] = holder
                pending += [(join_path(path, key), each, to) for key, each, to in _members(value, holder)]
            if (holder := seen[id(value)]) is not None:
                holder.places.append(put)
    return list(found.values())


def _members(value: Any, holder: _Container | None = None) -> list[tuple[Any, Any, Put]]:
    """Return the key, the member and the function that replaces it: in a copy that a holder makes, or else in place."""
    if isinstance(value, dict):
        items = list(dict.items(value))
    else:
        items = list(enumerate(list.__iter__(value) if isinstance(value, list) else tuple.__iter__(value)))
    if holder is not None:
        return [(key, each, _Place(holder, key)) for key, each in items]
    put = dict.__setitem__ if isinstance(value, dict) else list.__setitem__
    return [(key, each, partial(put, value, key)) for key, each in items]


class _Container:
    """A list, dictionary or tuple in the attributes of a module, and the copy that has other members.

    The program can have the container, too: a metric caches a result, and keeps the tuple that it was given.

    Args:
        value: The container; a list or dictionary is of no subclass, whose copies its own code would make.
    """

    def __init__(self, value: Any) -> None:
        self._value = self._now = value
        self._replaced: dict[Any, Any] = {}
        self.places: list[Put] = []
        """Functions that put another container where this one is; it may be in itself."""

    def replace(self, key: Any, new: Any) -> bool:
        """Replace a member; return True if that made another container. With its own members, it is the given one."""
        before, value = self._now, self._value
        self._replaced[key] = new
        if new is (tuple.__getitem__(value, key) if isinstance(value, tuple) else value[key]):
            del self._replaced[key]
        if not self._replaced:
            self._now = value
        elif isinstance(value, tuple):
            self._now = _remade(value, [self._replaced.get(i, each) for i, each in enumerate(tuple.__iter__(value))])
        else:
            self._now = value.copy() if before is value else before
            self._now[key] = new
        return self._now is not before

    @property
    def now(self) -> Any:
        """The container with its present members."""
        return self._now


def _remade(value: Any, members: list[Any]) -> Any:
    """Return a tuple of the same class with other members and the same attributes."""
    cls = type(value)
    if hasattr(cls, "n_sequence_fields"):  # such as the results of `torch.max`
        return cls(members)
    made = tuple.__new__(cls, members)
    if hasattr(made, "__dict__"):
        vars(made).update(vars(value))
    return made


class _Place:
    """The place of a member in a container; a call puts another there, and the new containers in those around them."""

    def __init__(self, holder: _Container, key: Any) -> None:
        self._holder = holder
        self._key = key

    def __call__(self, new: Any) -> None:
        pending: list[tuple[_Place, Any]] = [(self, new)]
        for place, value in pending:  # which grows: tuples may be deep
            holder = place._holder
            if holder.replace(place._key, value):
                for put in holder.places:
                    if isinstance(put, _Place):
                        pending.append((put, holder.now))
                    else:
                        put(holder.now)


def _is_trained(x: Tensor) -> bool:
    """Return True for a tensor that an optimizer may have, and whose data can be replaced."""
    if not (x.is_leaf and (x.requires_grad or isinstance(x, torch.nn.Parameter))) or is_traceable_wrapper_subclass(x):
        return False
    return x.layout is torch.strided and not x.is_quantized and not x.is_nested


def _same(tensor: Tensor) -> Tensor:
    return tensor


def _fill(puts: list[Put], new: Tensor) -> None:
    for put in puts:
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
