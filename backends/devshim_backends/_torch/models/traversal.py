"""The tensors in a module: its own parameters and buffers, those of its submodules, and their devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devshim.contract.backend import Tensor


def own_tensors(module: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield the names and tensors of a module's own parameters, then of its own buffers."""
    for tensors in (module._parameters, module._buffers):
        yield from ((name, tensor) for name, tensor in tensors.items() if tensor is not None)


def all_tensors(module: Any) -> Iterator[Tensor]:
    """Yield the parameters and buffers of a module and its submodules."""
    for each in module.modules():
        yield from (tensor for _, tensor in own_tensors(each))


def devices_of(module: Any) -> dict[Any, None]:
    """Return the devices of all parameters and buffers in a module and its submodules, in their order."""
    return {tensor.device: None for tensor in all_tensors(module)}


def own_devices_of(module: Any) -> dict[Any, None]:
    """Return the devices of the tensors that a module's own code computes with."""
    if isinstance(module, torch.nn.MultiheadAttention):  # it uses the weight of its submodule, and never calls it
        return devices_of(module)
    found = {tensor.device: None for _, tensor in own_tensors(module)}
    parametrized = module._modules.get("parametrizations")
    return found if parametrized is None else {**found, **devices_of(parametrized)}
