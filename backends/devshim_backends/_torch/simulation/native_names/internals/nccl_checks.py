"""The checks of NCCL and of its process group, which gloo lacks: it accepts tensors on the host, and makes copies.

Source: ``ProcessGroupNCCL.cpp`` and ``NCCLUtils.hpp`` of PyTorch, and the checks of arguments in NCCL itself. The
process group copies the lists of tensors that `all_gather`, `gather`, `scatter` and `reduce_scatter` take, so these
need not be contiguous, and neither need tensors that are sent to single ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import distributed

__all__ = ["FLOAT8", "check"]

FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
"""The kinds of float8 that NCCL copies."""
_DTYPES = (
    *(torch.int8, torch.uint8, torch.int32, torch.int64, torch.bool),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128),
    *FLOAT8,
)
"""The dtypes of NCCL, and the complex ones, which PyTorch passes to it as real ones."""
_NAMES = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM")
"""Name of a reduction, at its number in ``c10d::ReduceOp``."""
_REDUCE_OP = {
    **dict.fromkeys(("allreduce_", "allreduce_coalesced_", "reduce_"), 2),
    **dict.fromkeys(("reduce_scatter_", "_reduce_scatter_base_", "reduce_scatter_tensor_coalesced_"), 3),
}
"""Operator -> the position of its reduction."""
_ROOT = {"broadcast_": 2, **dict.fromkeys(("reduce_", "gather_", "scatter_"), 3)}
"""Operator -> the position of its root."""

_CONTIGUOUS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("allreduce_", "broadcast_", "reduce_", "reduce_scatter_", "scatter_"), (0,)),
    **dict.fromkeys(("allgather_", "gather_"), (1,)),
    **dict.fromkeys(("_allgather_base_", "_reduce_scatter_base_", "alltoall_base_"), (0, 1)),
}
"""Operator -> the positions of tensors whose memory NCCL uses."""
_TOGETHER = "allreduce_coalesced_"
"""The operator on a list of tensors that NCCL sums together."""


def check(name: str, args: tuple[Any, ...], group: Any) -> None:
    """Refuse arguments of a collective call as NCCL and its process group do."""
    _check_tensors(name, args)
    tensors = list(_tensors(args))
    for each in tensors:
        if each.dtype not in _DTYPES:
            kind = each.new_empty(0, device="cpu").type().removeprefix("torch.").removesuffix("Tensor")
            msg = f"Input tensor data type is not supported for NCCL process group: {kind}"
            raise TypeError(msg)
    if name in _REDUCE_OP:
        _check_reduction(_NAMES[args[_REDUCE_OP[name]].op()], tensors[0].dtype)
    if name in _ROOT:
        _check_root(name, args[_ROOT[name]], group.size())


def _check_root(name: str, root: int, size: int) -> None:
    if 0 <= root < size:
        return
    if name in ("gather_", "scatter_"):
        msg = f"ProcessGroupNCCL::{name[:-1]}: invalid root rank: {root}"
        raise ValueError(msg)
    text = f"{name[:-1].capitalize()} : invalid root {root} (root should be in the 0..{size} range)"
    raise _nccl_error(text)


def _check_reduction(reduction: str, dtype: Any) -> None:
    if dtype in FLOAT8[2:]:
        msg = "Unsupported Float8 type for NCCL reduction"
        raise RuntimeError(msg)
    if dtype in FLOAT8:
        text = "FP8 reduction support begins with sm90 capable devices."
        raise _nccl_error(text)
    if reduction == "AVG" and dtype is torch.bool:
        msg = "Cannot use ReduceOp.AVG with boolean inputs"
        raise TypeError(msg)
    if reduction == "PREMUL_SUM" and not dtype.is_floating_point:
        msg = "PreMulSum Data type must be half, float, bfloat16 or double"
        raise TypeError(msg)
    if reduction in ("BAND", "BOR", "BXOR"):
        msg = f"Cannot use ReduceOp.{reduction} with NCCL"
        raise ValueError(msg)


def _nccl_error(text: str) -> Exception:
    """Return the error for an argument that NCCL itself refuses."""
    error: Exception = distributed.DistBackendError(
        "NCCL error in: ProcessGroupNCCL.cpp, invalid argument (run with NCCL_DEBUG=WARN for details)\n"
        f"ncclInvalidArgument: Invalid value for an argument.\nLast error:\n{text}"
    )
    return error


def _check_tensors(name: str, args: tuple[Any, ...]) -> None:
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
