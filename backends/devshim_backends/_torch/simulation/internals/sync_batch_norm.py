"""The operators of ``torch.nn.SyncBatchNorm``, which PyTorch has for CUDA and lacks on the CPU.

Each rank computes the statistics of its part of a batch; the statistics of all parts give those of the batch. As on
CUDA, statistics of half-precision input are float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from devshim_backends._torch.simulation.dtypes import write_out


def _wide(x: Any) -> Any:
    """Return a tensor in the dtype in which CUDA adds."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _others(x: Any) -> list[int]:
    """Return all dimensions except that of the channels."""
    return [each for each in range(x.dim()) if each != 1]


def _per_channel(values: Any, x: Any) -> Any:
    """Return one number per channel in a shape that broadcasts with `x`."""
    return values.view(1, -1, *[1] * (x.dim() - 2))


def stats(x: Any, eps: float) -> tuple[Any, Any]:
    """Implement ``aten::batch_norm_stats``: return mean and inverse standard deviation of each channel."""
    variance, mean = torch.var_mean(_wide(x), _others(x), correction=0)
    return mean, (variance + eps).rsqrt()


def gather_stats_with_counts(
    x: Any, mean: Any, invstd: Any, running_mean: Any, running_var: Any, momentum: float, eps: float, counts: Any
) -> tuple[Any, Any]:
    """Implement ``aten::batch_norm_gather_stats_with_counts``: combine the statistics of parts, one per row."""
    counts = counts.to(mean.dtype).view(-1, 1)
    total = counts.sum()
    combined = (mean * counts).sum(0) / total
    squares = ((invstd.square().reciprocal() - eps + (mean - combined).square()) * counts).sum(0)
    if running_mean is not None:
        running_mean.lerp_(combined.to(running_mean.dtype), momentum)
    if running_var is not None:
        running_var.lerp_((squares / (total - 1)).to(running_var.dtype), momentum)
    return combined, (squares / total + eps).rsqrt()


def gather_stats(
    x: Any, mean: Any, invstd: Any, running_mean: Any, running_var: Any, momentum: float, eps: float, count: int
) -> tuple[Any, Any]:
    """Implement ``aten::batch_norm_gather_stats``: all parts have the same size."""
    counts = torch.full((len(mean),), count, dtype=mean.dtype, device=mean.device)
    return gather_stats_with_counts(x, mean, invstd, running_mean, running_var, momentum, eps, counts)


def normalize(x: Any, weight: Any, bias: Any, mean: Any, invstd: Any, eps: float, *, out: Any = None) -> Any:
    """Implement ``aten::batch_norm_elemt``: normalize each element."""
    result = (_wide(x) - _per_channel(mean, x)) * _per_channel(invstd, x)
    if weight is not None:
        result = result * _per_channel(weight, x)
    if bias is not None:
        result = result + _per_channel(bias, x)
    return result.to(x.dtype) if out is None else write_out("aten::batch_norm_elemt", out, result)


def backward_reduce(
    grad: Any, x: Any, mean: Any, invstd: Any, weight: Any, input_g: bool, weight_g: bool, bias_g: bool
) -> tuple[Any, Any, Any, Any]:
    """Implement ``aten::batch_norm_backward_reduce``: return two sums, and the gradients of weight and bias."""
    dims, wide = _others(x), _wide(grad)
    sum_dy = wide.sum(dims)
    sum_dy_xmu = (wide * (_wide(x) - _per_channel(mean, x))).sum(dims)
    dtype = sum_dy.dtype if weight is None else weight.dtype
    return (
        sum_dy if input_g else None,
        sum_dy_xmu if input_g else None,
        (sum_dy_xmu * invstd).to(dtype) if weight_g else None,
        sum_dy.to(dtype, copy=True) if bias_g else None,
    )


def backward_elemt(
    grad: Any, x: Any, mean: Any, invstd: Any, weight: Any, sum_dy: Any, sum_dy_xmu: Any, count: Any
) -> Any:
    """Implement ``aten::batch_norm_backward_elemt``: return the gradient of the input."""
    total = count.sum()
    centred = _wide(x) - _per_channel(mean, x)
    slope = _per_channel(sum_dy_xmu / total * invstd.square(), x)
    scale = _per_channel(invstd if weight is None else invstd * weight, x)
    return ((_wide(grad) - _per_channel(sum_dy / total, x) - centred * slope) * scale).to(x.dtype)


SYNC_BATCH_NORM_KERNELS: Mapping[str, Callable[..., Any]] = {
    "batch_norm_stats": stats,
    "batch_norm_gather_stats": gather_stats,
    "batch_norm_gather_stats_with_counts": gather_stats_with_counts,
    **dict.fromkeys(("batch_norm_elemt", "batch_norm_elemt.out"), normalize),
    "batch_norm_backward_reduce": backward_reduce,
    "batch_norm_backward_elemt": backward_elemt,
}
"""Operator -> its kernel at PrivateUse1."""
