"""The comparison of a GPU's result with the host's: structure, dtype, shape, values and device."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_flatten

if TYPE_CHECKING:
    from collections.abc import Callable

HOST = torch.device("cpu")


class Differs(AssertionError):
    """The error for a GPU's result that differs from the host's."""


def tensors(value: Any, selects: Callable[[torch.Tensor], bool] = lambda tensor: True) -> list[torch.Tensor]:
    """Return a tree's tensors, or the selected ones."""
    return [leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, torch.Tensor) and selects(leaf)]


def require_device(value: Any, device: torch.device, what: str) -> None:
    """Raise for a tensor on any other device; ``cuda`` without an index is the first GPU, which is the current one."""
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", 0)
    for tensor in tensors(value):
        if tensor.device != device:
            raise Differs(f"{what} is on {tensor.device}, not on {device}")


def require_alike(gpu: Any, host: Any, what: str, *, values: bool = True) -> bool:
    """Raise if structure, dtype, shape or values differ from the host's.

    Args:
        gpu: The GPU's result.
        host: The host's result.
        what: Its description, for the message.
        values: True if the values are defined; those of ``empty`` are not.

    Returns:
        True if the values equal the host's bit for bit, not only within `torch.testing.assert_close`'s tolerances.
    """
    gpu_leaves, gpu_structure = tree_flatten(gpu)
    host_leaves, host_structure = tree_flatten(host)
    if gpu_structure != host_structure:
        raise Differs(f"{what} is {gpu_structure}, on the host {host_structure}")
    exact = True
    for one, other in zip(gpu_leaves, host_leaves, strict=True):
        if isinstance(other, torch.Tensor):
            exact &= _require_tensor(one, other, what, values)
        elif values and not _same(one, other):
            raise Differs(f"{what} is {one!r}, on the host {other!r}")
    return exact


def _require_tensor(gpu: Any, host: torch.Tensor, what: str, values: bool) -> bool:
    if not isinstance(gpu, torch.Tensor):
        raise Differs(f"{what} is {gpu!r}, on the host a tensor")
    for name in ("dtype", "layout", "shape", "requires_grad"):
        if getattr(gpu, name) != getattr(host, name):
            raise Differs(f"{what} has {name} {getattr(gpu, name)}, on the host {getattr(host, name)}")
    if not values:
        return True
    gpu, host = gpu.detach().to(HOST), host.detach()
    if host.dtype == torch.complex32:  # it cannot be compared on the CPU
        gpu, host = gpu.to(torch.complex64), host.to(torch.complex64)
    if gpu.layout == torch.strided and torch.equal(gpu, host):
        return True
    try:
        torch.testing.assert_close(gpu, host, rtol=0, atol=0, equal_nan=True)
    except AssertionError:
        try:
            torch.testing.assert_close(gpu, host, equal_nan=True)
        except AssertionError as error:
            raise Differs(f"{what} has other values: {' '.join(str(error).split())}") from None
        return False
    return True


def _same(one: Any, other: Any) -> bool:
    """Return True if two values other than tensors are the same."""
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return type(one) is type(other) and bool(one == other)


def ramp(like: torch.Tensor) -> torch.Tensor:
    """Return a gradient for a result: small, of both signs, with different neighbours, and never zero."""
    steps = torch.arange(like.numel(), device=HOST).remainder(8).mul(2).sub(7).div(8)
    return steps.reshape(like.shape).to(like.dtype).to(like.device)
