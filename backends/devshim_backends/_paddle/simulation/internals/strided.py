"""Operators that return strided views, on simulated GPUs: ``as_strided``, ``unfold`` along an axis, and ``set_``.

The plug-in switches off Paddle's strided kernels, and these operators have no others, on the CPU either (3.0 to 3.3).
All tensors are contiguous then, so the elements are gathered into new memory. Gradients flow through; writing to the
result does not change its source.
"""

from __future__ import annotations

from functools import wraps
from math import prod
from typing import Any

import numpy as np
import paddle

from devshim_backends._paddle.devices import core

__all__ = ["as_strided", "set_elements", "tensor_unfold"]


def as_strided(operator: Any) -> Any:
    """Return Paddle's operator ``as_strided`` with a copy of the elements."""

    @wraps(operator)
    def call(x: Any, shape: Any, stride: Any, offset: int = 0) -> Any:
        if not isinstance(x, core.eager.Tensor):  # a value in a function that is being compiled
            return operator(x, shape, stride, offset)
        if len(shape) != len(stride):
            msg = f"(InvalidArgument) The shape {list(shape)} and the stride {list(stride)} must have the same length."
            raise ValueError(msg)
        return _gather(x, list(shape), list(stride), offset)

    return call


def tensor_unfold(operator: Any) -> Any:
    """Return Paddle's operator ``tensor_unfold`` with a copy of the elements."""

    @wraps(operator)
    def call(x: Any, axis: int, size: int, step: int) -> Any:
        if not isinstance(x, core.eager.Tensor):
            return operator(x, axis, size, step)
        shape = list(x.shape)
        if not -len(shape) <= axis < len(shape) or not 0 <= size <= shape[axis] or step <= 0:
            msg = f"(InvalidArgument) unfold of shape {shape} cannot take slices of {size} along axis {axis} by {step}."
            raise ValueError(msg)
        stride = _contiguous(shape)
        stride, last = [*stride], stride[axis]
        stride[axis] *= step
        shape[axis] = (shape[axis] - size) // step + 1
        return _gather(x, [*shape, size], [*stride, last], 0)

    return call


def set_elements(operator: Any) -> Any:
    """Return Paddle's operator ``set_``, which gets a copy of the elements if they are not next to each other."""

    @wraps(operator)
    def call(x: Any, source: Any, shape: Any, stride: Any, offset: int = 0) -> Any:
        shape, stride = list(shape), list(stride)
        if not isinstance(source, core.eager.Tensor) or 0 in shape or stride == _contiguous(shape):
            return operator(x, source, shape, stride, offset)
        return operator(x, _gather(source, shape, stride, offset).detach(), shape, _contiguous(shape), 0)

    return call


def _contiguous(shape: list[int]) -> list[int]:
    """Return the strides of a contiguous tensor, in elements."""
    return [prod(shape[axis + 1 :]) for axis in range(len(shape))]


def _gather(x: Any, shape: list[int], stride: list[int], offset: int) -> Any:
    """Return a tensor of the elements at strides, which count elements, from an offset in bytes."""
    index = np.full(shape, offset // core.size_of_dtype(x.dtype), "int64")
    for axis, (size, step) in enumerate(zip(shape, stride, strict=True)):
        index += (np.arange(size) * step).reshape([-1] + [1] * (len(shape) - axis - 1))
    flat = paddle.to_tensor(index.reshape(-1), place=x.place)
    lacks_kernel = x.dtype == paddle.float16  # of `gather`, on the host
    values = paddle.reshape(x.astype("float32") if lacks_kernel else x, [-1])
    found = paddle.reshape(paddle.gather(values, flat), shape)
    return found.astype(x.dtype) if lacks_kernel else found
