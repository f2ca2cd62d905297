"""Operators that only builds for CUDA have, composed of others: attention and ``linear`` layers call them on GPUs.

Tensors on the host get Paddle's own error, as on a machine with GPUs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from math import inf
from typing import Any

import paddle

from devshim_backends._paddle.devices import core
from devshim_backends._paddle.simulation.device_rules import device_or_none

__all__ = ["LEGACY", "OPERATORS"]

functional = paddle.nn.functional


def _softmax_mask(x: Any, mask: Any) -> Any:
    return functional.softmax(x + mask)


def _softmax_mask_upper_triangle(x: Any) -> Any:
    """Return the softmax of the rows, each up to its element on the diagonal."""
    return functional.softmax(x + paddle.triu(paddle.full_like(x, -inf), 1))


def _rms_norm(x: Any, weight: Any, normalized_shape: Any, epsilon: float) -> tuple[Any, Any]:
    """Return the normalized tensor, and the factor of each row."""
    axes = list(range(-len(normalized_shape), 0))
    factor = paddle.rsqrt(paddle.mean(x * x, axes, keepdim=True) + epsilon)
    normalized = x * factor
    return normalized if weight is None else normalized * weight, paddle.reshape(factor, [-1])


def _gemm_epilogue(x: Any, y: Any, bias: Any, trans_x: bool, trans_y: bool, activation: str) -> tuple[Any, Any]:
    """Return a product plus a bias, after an activation, and that before it."""
    product = paddle.matmul(x, y, trans_x, trans_y) + bias
    return {"none": paddle.assign, "relu": functional.relu, "gelu": functional.gelu}[activation](product), product


def _on_gpus(composed: Callable[..., Any]) -> Callable[..., Any]:
    """Return what makes the replacement of an operator, which uses the composed one for tensors on GPUs."""

    def replace(operator: Any) -> Any:
        @wraps(operator)
        def call(x: Any, *args: Any, **kwargs: Any) -> Any:
            device = device_or_none(x)
            is_on_gpu = device is not None and device.kind == "gpu"
            return (composed if is_on_gpu else operator)(x, *args, **kwargs)

        return call

    return replace


def _legacy_gemm_epilogue(x: Any, y: Any, bias: Any, *pairs: Any) -> Any:
    """Return the product of the operator of the old kind, whose last arguments are names and values."""
    values = dict(zip(pairs[::2], pairs[1::2], strict=True))
    return paddle._C_ops.fused_gemm_epilogue(x, y, bias, values["trans_x"], values["trans_y"], values["activation"])[0]


OPERATORS = {
    "fused_gemm_epilogue": _on_gpus(_gemm_epilogue),
    "fused_softmax_mask": _on_gpus(_softmax_mask),
    "fused_softmax_mask_upper_triangle": _on_gpus(_softmax_mask_upper_triangle),
    "rms_norm": _on_gpus(_rms_norm),
}
"""Operator -> its workaround."""

LEGACY = {"fused_gemm_epilogue": _legacy_gemm_epilogue}
"""Operator of the old kind that only builds for CUDA have -> its replacement."""
