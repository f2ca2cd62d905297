"""Operators that Paddle lacks on simulated GPUs: ``x.view(shape)``, ``x.view(dtype)``, and `paddle.nn.SyncBatchNorm`.

Also `paddle.lerp` with a number, which Paddle passes to GPUs in float64.

The plug-in switches off Paddle's strided kernels, and there are no others for views: ``view_shape`` then returns
the old shape, and ``view_dtype`` fails, on the CPU too (3.0 to 3.3). All tensors are contiguous then, so that a view
is a tensor over the same memory with another shape.
"""

from __future__ import annotations

from functools import wraps
from math import prod
from typing import Any

import numpy as np
import paddle
from paddle.autograd import PyLayer

from devshim_backends._paddle.devices import core
from devshim_backends._paddle.tensors import storage_dtype

__all__ = ["cast_weight", "normalize_one_batch", "view_dtype", "view_shape"]

Tensor = core.eager.Tensor
_batch_norm = paddle._C_ops.batch_norm  # the original: this module is imported before the wrappers are installed


def normalize_one_batch(operator: Any) -> Any:
    """Return Paddle's operator ``sync_batch_norm_``, which only builds for CUDA have, for a program of one process.

    There it normalizes the batch as ``batch_norm`` does. Programs of several processes are refused.
    """

    @wraps(operator)
    def call(*args: Any) -> Any:
        return _batch_norm(*args)

    return call


def cast_weight(operator: Any) -> Any:
    """Return Paddle's operator ``lerp`` for a weight in another dtype than its tensors, as kernels for GPUs take it."""

    @wraps(operator)
    def call(x: Any, y: Any, weight: Any) -> Any:
        is_other = isinstance(x, Tensor) and weight.dtype != x.dtype and x.place.is_custom_place()
        return operator(x, y, weight.astype(x.dtype) if is_other else weight)

    return call


def view_shape(operator: Any) -> Any:
    """Return Paddle's operator ``view_shape`` with a view over the same memory."""

    @wraps(operator)
    def call(x: Any, shape: Any) -> Any:
        old = list(x.shape)
        new = [old[axis] if size == 0 and axis < len(old) else size for axis, size in enumerate(shape)]
        known = -prod(new)
        if new.count(-1) == 1 and known > 0 and prod(old) % known == 0:
            new[new.index(-1)] = prod(old) // known
        if min(new, default=0) < 0 or prod(new) != prod(old) or not prod(old):
            return paddle._C_ops.reshape(x, shape)  # a tensor without elements, or Paddle's own error
        return _Shaped.apply(x, new)

    return call


def view_dtype(operator: Any) -> Any:
    """Return Paddle's operator ``view_dtype`` with a copy: Paddle lets no tensor read the memory of another dtype."""

    @wraps(operator)
    def call(x: Any, dtype: Any) -> Any:
        old, new = core.size_of_dtype(x.dtype), core.size_of_dtype(dtype)
        shape = list(x.shape)
        if old != new and (not shape or shape[-1] * old % new):
            last = f"input.shape[{len(shape) - 1}]({shape[-1]})" if shape else "a tensor of shape []"
            msg = f"(InvalidArgument) {last} must be multiple of {max(new // old, 1)} to view {x.dtype} as {dtype}"
            raise ValueError(msg)
        return _Typed.apply(x, dtype)

    return call


class _Shaped(PyLayer):  # type: ignore[misc]  # PaddlePaddle is Any to the type checker
    """A tensor over the same memory with another shape."""

    @staticmethod
    def forward(ctx: Any, x: Any, shape: list[int]) -> Any:
        ctx.shape = list(x.shape)
        view = Tensor(dtype=x.dtype, dims=shape, name="", type=core.VarDesc.VarType.DENSE_TENSOR, persistable=False)
        x._share_buffer_to(view)
        return view

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient.reshape(ctx.shape)


class _Typed(PyLayer):  # type: ignore[misc]
    """A tensor of the same bits with another dtype."""

    @staticmethod
    def forward(ctx: Any, x: Any, dtype: Any) -> Any:
        ctx.dtype = x.dtype
        return _with_bits(x, dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return _with_bits(gradient, ctx.dtype)


def _with_bits(x: Any, dtype: Any) -> Any:
    array = np.ascontiguousarray(x.detach().numpy()).reshape(x.shape)
    return Tensor(value=array.view(storage_dtype(str(dtype).removeprefix("paddle."))), place=x.place)
