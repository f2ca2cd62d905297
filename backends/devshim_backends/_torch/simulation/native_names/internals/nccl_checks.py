"""The checks of NCCL's process group, which gloo lacks: it accepts tensors on the host, and makes copies of its own.

Source: ``ProcessGroupNCCL.cpp`` of PyTorch. It copies the lists of tensors that `all_gather`, `gather`, `scatter` and
`reduce_scatter` take, so these need not be contiguous, and neither need tensors that are sent to single ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

__all__ = ["check"]

_CONTIGUOUS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("allreduce_", "broadcast_", "reduce_", "reduce_scatter_", "scatter_"), (0,)),
    **dict.fromkeys(("allgather_", "gather_"), (1,)),
    **dict.fromkeys(("_allgather_base_", "_reduce_scatter_base_", "alltoall_base_"), (0, 1)),
}
"""Operator -> the positions of tensors whose memory NCCL uses."""
_TOGETHER = "allreduce_coalesced_"
"""The operator on a list of tensors that NCCL sums together."""


def check(name: str, args: tuple[Any, ...]) -> None:
    """Refuse tensors of a collective call as NCCL's process group does."""
    contiguous = _CONTIGUOUS.get(name, ())
    for position, value in enumerate(args):
        for each in _tensors(value):
            if each.get_device() < 0 or each.layout is not torch.strided:
                msg = "Tensors must be CUDA and dense"
                raise ValueError(msg)
            if position in contiguous and not _is_contiguous(each):
                msg = "Tensors must be contiguous"
                raise ValueError(msg)
    if name == _TOGETHER:
        _check_together(args[0])


def _check_together(tensors: list[Any]) -> None:
    for each in tensors:
        if each.dtype is not tensors[0].dtype:
            msg = "Tensors must have identical type"
            raise TypeError(msg)
        if not torch.ops.aten.is_non_overlapping_and_dense.default(each):
            msg = "Tensors must be non-overlapping and dense"
            raise ValueError(msg)
        if each.get_device() != tensors[0].get_device():
            msg = "Expected list of tensors on the same device"
            raise ValueError(msg)


def _tensors(value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _tensors(each)


def _is_contiguous(tensor: Any) -> bool:
    """Return True for a tensor that is contiguous in the memory format of its strides."""
    if tensor.is_contiguous():
        return True
    channels_last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(tensor.dim())
    return channels_last is not None and tensor.is_contiguous(memory_format=channels_last)
