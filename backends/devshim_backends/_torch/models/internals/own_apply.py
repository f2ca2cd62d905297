"""Modules that move more than their parameters and buffers, or note their device: metrics, and modules of Lightning.

The metrics of torchmetrics keep tensors in plain attributes, and override ``_apply``, which ``Module.to`` calls. Such
tensors are leaves here. They are not part of a checkpoint, as they are not in ``state_dict``. Modules of Lightning
override ``to``, to note the device in an attribute.

When the leaves have moved, the module's own method is called once: for what it notes, and for tensors with a graph,
whose data cannot be replaced. A module with tensors on several devices is not asked, because its method knows one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from devshim.contract.blocks import join_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from devshim.contract.backend import Tensor

_OWN_OF_TORCH = (torch.nn.RNNBase, torch.jit.ScriptModule)
"""Classes of PyTorch that override ``_apply`` for their parameters only."""
_SEARCHED = frozenset({"_parameters", "_buffers", "_modules"})
"""The attributes of a module whose tensors are found elsewhere."""


def overrides_apply(module: Any) -> bool:
    """Return True if a module's class moves more than its parameters and buffers."""
    return type(module)._apply is not torch.nn.Module._apply and not isinstance(module, _OWN_OF_TORCH)


def notes_device(module: Any) -> bool:
    """Return True if a module must be told that it has moved: it moves more, or has a device in an attribute."""
    if overrides_apply(module):
        return True
    overrides_to = type(module).to is not torch.nn.Module.to and not isinstance(module, _OWN_OF_TORCH)
    return overrides_to and any(isinstance(x, torch.device) for x in vars(module).values())


def plain_tensors(module: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield the names and the tensors without a graph in the plain attributes of a module that overrides ``_apply``."""
    if overrides_apply(module):
        for name, value in vars(module).items():
            if name not in _SEARCHED:
                yield from _tensors_in(name, value)


def _tensors_in(path: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors in lists, tuples and dictionaries."""
    if isinstance(value, torch.Tensor):
        if value.is_leaf:
            yield path, value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from _tensors_in(join_path(path, key), each)
    elif isinstance(value, (list, tuple)):
        for i, each in enumerate(value):
            yield from _tensors_in(join_path(path, i), each)


def finish_move(module: Any, device: Any) -> Callable[[], None]:
    """Call the method by which a module moves, after its tensors have moved; return a function that undoes it.

    Args:
        module: A module of which `notes_device` is True.
        device: The native device on which all its tensors are.
    """
    before = {id(each): (each, dict(vars(each))) for each in module.modules()}
    if overrides_apply(module):
        module._apply(lambda x: x.to(device))
    else:
        module.to(device)

    def undo() -> None:
        for each, attributes in before.values():
            vars(each).update(attributes)

    return undo
