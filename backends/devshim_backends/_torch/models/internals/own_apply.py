"""Modules that move more than their parameters and buffers, or note their device: metrics, and modules of Lightning.

The metrics of torchmetrics keep tensors in plain attributes, and override ``_apply``, which ``Module.to`` calls. Such
tensors are leaves here, but not part of a checkpoint. Modules of Lightning override ``to``, to note the device in an
attribute, as torchmetrics does.

The methods of these modules are not called: they could fail after half of a move, or replace parameters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from devshim.contract.blocks import join_path
from devshim_backends._torch.models.traversal import devices_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from devshim.contract.backend import Tensor

_OWN_OF_TORCH = (torch.nn.RNNBase, torch.jit.ScriptModule)
"""Classes of PyTorch that override ``_apply`` for their parameters only."""
_SEARCHED = frozenset({"_parameters", "_buffers", "_modules"})
"""The attributes of a module whose tensors are found elsewhere."""
_NOTES = ("device", "_device")
"""The attributes in which such modules note their device."""


def _overrides(module: Any, name: str) -> bool:
    return getattr(type(module), name) is not getattr(torch.nn.Module, name) and not isinstance(module, _OWN_OF_TORCH)


def plain_tensors(module: Any, known: set[int]) -> Iterator[tuple[str, Tensor]]:
    """Yield the names and the tensors in the plain attributes of a module that overrides ``_apply``.

    Args:
        module: The module.
        known: The addresses of tensors and containers that are not yielded, or not searched, again. It grows.
    """
    if _overrides(module, "_apply"):
        for name, value in vars(module).items():
            if name not in _SEARCHED:
                yield from _tensors_in(name, value, known)


def _tensors_in(path: str, value: Any, known: set[int]) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors whose data can be replaced, also those in lists, tuples and dictionaries."""
    if id(value) in known:
        return
    if isinstance(value, torch.Tensor):
        if _is_replaceable(value):
            known.add(id(value))
            yield path, value
    elif isinstance(value, (dict, list, tuple)):
        known.add(id(value))
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _tensors_in(join_path(path, key), each, known)


def _is_replaceable(x: Tensor) -> bool:
    """Return True for a tensor in memory that is not the result of a computation, and not made of other tensors."""
    if type(x) not in (torch.Tensor, torch.nn.Parameter) or not x.is_leaf or x.is_meta:
        return False
    return x.layout is torch.strided and not x.is_quantized and not x.is_nested


def noting_modules(model: Any) -> Iterator[tuple[str, Any, dict[Any, None]]]:
    """Yield the path of each module that notes its device, the module, and the devices of its tensors."""
    for path, module in model.named_modules():
        if notes_of(module):
            found = devices_of(module)
            for each in module.modules():
                found.update((x.device, None) for _, x in plain_tensors(each, set()))
            yield path, module, found


def notes_of(module: Any) -> dict[str, torch.device]:
    """Return the attributes in which a module notes its device, if it overrides a method by which modules move."""
    if not _overrides(module, "_apply") and not _overrides(module, "to"):
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
