"""The C functions under `torch.nn.parallel.comm`, the basis of DataParallel, which a build without CUDA lacks.

They copy between simulated GPUs, and refuse what those of a build with CUDA refuse. The functions of
`torch.nn.parallel.comm` themselves are PyTorch's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.cuda import nccl

from devshim_backends._torch.simulation.internals.patches import install
from devshim_backends._torch.simulation.internals.state import index_of, shown_device


def _gpu(index: int) -> Any:
    """Return the device of a GPU that exists."""
    if index < 0:
        msg = f"Expected non-negative device index, but got {index}"
        raise RuntimeError(msg)
    return shown_device(index_of(index))


def _require_gpus(outputs: Sequence[Any]) -> None:
    for index, each in enumerate(outputs):
        if each.get_device() < 0:
            msg = (
                f"Expected all output tensors to be CUDA tensors, but output tensor at index {index} has device "
                f"'{each.device}'"
            )
            raise RuntimeError(msg)


def _shape(sizes: Sequence[int]) -> str:
    return str(list(sizes))


def _broadcast(tensor: Any, devices: Sequence[int]) -> list[Any]:
    """Return copies of a tensor on every GPU; on its own GPU, the tensor itself."""
    own = tensor.get_device()
    gpus = [_gpu(each) for each in devices]
    return [tensor if own == gpu.index else tensor.to(gpu, non_blocking=True) for gpu in gpus]


def _broadcast_out(tensor: Any, out: Sequence[Any]) -> list[Any]:
    """Copy a tensor into tensors on GPUs, and return them."""
    _require_gpus(out)
    for index, each in enumerate(out):
        if each.shape != tensor.shape:
            msg = (
                f"Expected all output tensors to have same shape as the source tensor {_shape(tensor.shape)}, but "
                f"output tensor at index {index} has shape {_shape(each.shape)}"
            )
            raise RuntimeError(msg)
    return [each.copy_(tensor, non_blocking=True) for each in out]


def _broadcast_coalesced(tensors: Sequence[Any], devices: Sequence[int], buffer_size: int) -> list[list[Any]]:
    """Return copies of several tensors on every GPU; on the first, which they must be on, the tensors themselves."""
    first, *others = [_gpu(each) for each in devices]
    if any(each.get_device() != first.index for each in tensors):
        msg = f"All tensors must be on devices[0]: {first.index}"
        raise RuntimeError(msg)
    return [list(tensors), *([_copied(each.detach(), gpu) for each in tensors] for gpu in others)]


def _copied(tensor: Any, gpu: Any) -> Any:
    dense = {"memory_format": torch.contiguous_format} if tensor.layout is torch.strided else {}
    return tensor.to(gpu, non_blocking=True, copy=True, **dense)


def _scatter(tensor: Any, devices: Sequence[int], chunk_sizes: Any, dim: int, streams: Any) -> list[Any]:
    """Return parts of a tensor, one per GPU."""
    if not devices:
        msg = "Expected at least one device to scatter to"
        raise RuntimeError(msg)
    if chunk_sizes is not None and len(chunk_sizes) != len(devices):
        msg = (
            "Expected devices and chunk_sizes to be of same length, but got "
            f"len(devices) = {len(devices)} and len(chunk_sizes) = {len(chunk_sizes)}"
        )
        raise RuntimeError(msg)
    parts = tensor.chunk(len(devices), dim) if chunk_sizes is None else tensor.split(list(chunk_sizes), dim)
    gpus = [_gpu(each) for each in devices]
    for index, (stream, gpu) in enumerate(zip(streams or (), gpus, strict=False)):
        if stream is not None and stream.device_index != gpu.index:
            msg = (
                f"Expected the device associated with the stream at index {index} (was {stream.device_index}) to match "
                f"the device supplied at that index (expected {gpu.index})"
            )
            raise RuntimeError(msg)
    return [part.to(gpu, non_blocking=True) for part, gpu in zip(parts, gpus, strict=False)]


def _scatter_out(tensor: Any, out: Sequence[Any], dim: int, streams: Any) -> list[Any]:
    """Copy parts of a tensor into tensors on GPUs, and return them."""
    if not out:
        msg = "Expected at least one output tensor to scatter to"
        raise RuntimeError(msg)
    _require_gpus(out)
    dim = range(tensor.dim())[dim]
    for index, each in enumerate(out):
        if each.dim() != tensor.dim() or _without(each.shape, dim) != _without(tensor.shape, dim):
            msg = (
                f"Output tensor at index {index} has incorrect shape: {_shape(each.shape)}. Expected same shape except "
                f"for scatter dim {dim} as the source tensor: {_shape(tensor.shape)}"
            )
            raise RuntimeError(msg)
    sizes = [each.shape[dim] for each in out]
    if sum(sizes) != tensor.shape[dim]:
        msg = (
            f"Total size for output tensors along scatter dim {dim} does not match the source tensor size at dim "
            f"{dim}. Expected {tensor.shape[dim]}, but got total size {sum(sizes)}"
        )
        raise RuntimeError(msg)
    parts = tensor.split(sizes, dim)
    return [each.copy_(part, non_blocking=True) for each, part in zip(out, parts, strict=True)]


def _without(shape: Any, dim: int) -> tuple[int, ...]:
    return tuple(shape[:dim]) + tuple(shape[dim + 1 :])


def _gathered_shape(tensors: Sequence[Any], dim: int) -> list[int]:
    """Return the shape of GPUs' tensors joined along a dimension; refuse tensors that cannot be joined."""
    if not tensors:
        msg = "Expected at least one tensor to gather from"
        raise RuntimeError(msg)
    expected = list(tensors[0].shape)
    for index, each in enumerate(tensors):
        if each.get_device() < 0:
            msg = (
                f"Expected all input tensors to be CUDA tensors, but tensor at index {index} has device '{each.device}'"
            )
            raise RuntimeError(msg)
        if each.dim() != len(expected):
            msg = (
                "Expected all input tensors to have the same number of dimensions, but tensor at index "
                f"{index} has {each.dim()} dimensions, (expected {len(expected)})"
            )
            raise RuntimeError(msg)
        expected[dim] = each.shape[dim]
        if list(each.shape) != expected:
            msg = f"Input tensor at index {index} has invalid shape {_shape(each.shape)}, but expected {expected}"
            raise RuntimeError(msg)
    expected[dim] = sum(each.shape[dim] for each in tensors)
    return expected


def _gather(tensors: Sequence[Any], dim: int, destination: int | None) -> Any:
    """Return tensors of several GPUs joined on one; ``-1`` is the host."""
    shape = _gathered_shape(tensors, dim)
    target = torch.device("cpu") if destination == -1 else _gpu(index_of(destination))
    last = all(x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last) for x in tensors)
    memory_format = torch.channels_last if last and not tensors[0].is_contiguous() else torch.contiguous_format
    made = torch.empty(shape, dtype=tensors[0].dtype, device=target, memory_format=memory_format)
    return _gather_out(tensors, made, dim)


def _gather_out(tensors: Sequence[Any], out: Any, dim: int) -> Any:
    """Join tensors of several GPUs into an existing tensor, which may be on the host."""
    shape = _gathered_shape(tensors, dim)
    if list(out.shape) != shape:
        msg = f"Expected out tensor to have shape {shape}, but got {_shape(out.shape)}"
        raise RuntimeError(msg)
    start = 0
    for each in tensors:
        out.narrow(dim, start, each.shape[dim]).copy_(each, non_blocking=out.get_device() >= 0)
        start += each.shape[dim]
    return out


def patch() -> None:
    """Install the functions, which a build with CUDA has only for real GPUs; NCCL adds nothing to them."""
    for function in (
        *(_broadcast, _broadcast_out, _broadcast_coalesced, _scatter, _scatter_out),
        *(_gather, _gather_out),
    ):
        install(torch._C, function.__name__, function)
    install(nccl, "is_available", lambda tensors: False)
