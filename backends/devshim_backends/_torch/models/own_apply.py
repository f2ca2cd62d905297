"""Modules that override ``_apply``, because they keep tensors in plain attributes: the metrics of torchmetrics do.

``Module.to`` calls ``_apply``, so such a module moves as a whole on CUDA. Its tensors are leaves here as well. They are
not part of a checkpoint, as they are not in ``state_dict``. When the leaves have moved, ``_apply`` is called once, for
what the module notes about its device, and for tensors with a graph, whose data cannot be replaced.
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
    """Call the ``_apply`` of a module whose tensors have moved, and return a function that undoes it.

    Args:
        module: A module that overrides ``_apply``.
        device: The native device on which its tensors are.
    """
    before = dict(vars(module))
    module._apply(lambda x: x.to(device))
    return lambda: vars(module).update(before)
