"""Replacements in `torch.nn.parallel.comm`, the basis of DataParallel: CUDA's primitives as copies between GPUs."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.parallel import comm

from devshim_backends._torch.simulation.internals.patches import install
from devshim_backends._torch.simulation.internals.state import NAME


def _device(device: Any) -> Any:
    return torch.device(NAME, device) if isinstance(device, int) else torch.device(device)


def broadcast(tensor: Any, devices: Any = None, *, out: Any = None) -> Any:
    """Return copies of a tensor on every device; on its own device, the tensor itself."""
    if out is not None:
        for each in out:
            each.copy_(tensor)
        return tuple(out)
    return tuple(tensor.to(_device(each)) for each in devices)


def broadcast_coalesced(tensors: Any, devices: Any, buffer_size: int = 0) -> Any:
    """Return the `broadcast` of several tensors, by device."""
    return tuple([each.detach().to(_device(device)) for each in tensors] for device in devices)


def reduce_add(inputs: Any, destination: Any = None) -> Any:
    """Return the sum of tensors on several devices."""
    target = inputs[0].device if destination is None else _device(destination)
    total = inputs[0].to(target, copy=True)
    for each in inputs[1:]:
        total += each.to(target)
    return total


def reduce_add_coalesced(inputs: Any, destination: Any = None, buffer_size: int = 0) -> Any:
    """Return the `reduce_add` of several tensors."""
    return tuple(reduce_add(list(each), destination) for each in zip(*inputs, strict=True))


def scatter(
    tensor: Any, devices: Any = None, chunk_sizes: Any = None, dim: int = 0, streams: Any = None, *, out: Any = None
) -> Any:
    """Return parts of a tensor, one per device."""
    count = len(devices if out is None else out)
    parts = tensor.chunk(count, dim) if chunk_sizes is None else tensor.split(list(chunk_sizes), dim)
    if out is not None:
        for target, part in zip(out, parts, strict=True):
            target.copy_(part)
        return tuple(out)
    return tuple(part.to(_device(each)) for part, each in zip(parts, devices, strict=False))


def gather(tensors: Any, dim: int = 0, destination: Any = None, *, out: Any = None) -> Any:
    """Return tensors of several devices joined on one; ``-1`` is the host."""
    if out is not None:
        return torch.cat([each.to(out.device) for each in tensors], dim, out=out)
    if destination == -1:
        target = torch.device("cpu")
    else:
        target = tensors[0].device if destination is None else _device(destination)
    return torch.cat([each.to(target) for each in tensors], dim)


def patch() -> None:
    """Replace functions that a build without CUDA lacks, and that a build with CUDA has only for its own cards."""
    for function in (broadcast, broadcast_coalesced, reduce_add, reduce_add_coalesced, scatter, gather):
        install(comm, function.__name__, function)
