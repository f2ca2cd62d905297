"""Operators that only builds for CUDA have, composed of others: attention and ``linear`` layers call them on GPUs.

Tensors on the host get Paddle's own error, as on a machine with GPUs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from math import inf
from typing import Any

import paddle

from devshim.devices.device import CPU
from devshim_backends._paddle.devices import core
from devshim_backends._paddle.simulation.device_rules import device_or_none

__all__ = ["LEGACY", "OPERATORS"]

Tensor = core.eager.Tensor
functional = paddle.nn.functional


def _softmax_mask(x: Any, mask: Any) -> Any:
    return functional.softmax(x + mask)


def _softmax_mask_upper_triangle(x: Any) -> Any:
    """Return the softmax of the rows, each up to its element on the diagonal."""
    zeros = paddle.cast(paddle.isnan(x), x.dtype) * 0  # `zeros_like` warns in a function that is being compiled
    return functional.softmax(x + paddle.triu(zeros - inf, 1))


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


def _flash_attention(
    query: Any, key: Any, value: Any, seed: Any, mask: Any, dropout: float, causal: bool, softmax: bool, *rest: Any
) -> tuple[Any, Any, None, None]:
    """Return the attention of Paddle's Python code, and its weights if ``softmax`` is True."""
    heads = query.shape[2] // key.shape[2]
    if heads > 1:
        key, value = (paddle.repeat_interleave(x, heads, 2) for x in (key, value))
    attend = import_module("paddle.nn.functional.flash_attention")._math_attention
    return (*attend(query, key, value, mask, dropout, causal, softmax, not rest[0]), None, None)


def _on_gpus(composed: Callable[..., Any]) -> Callable[..., Any]:
    """Return what makes the replacement of an operator: the composed one, except for tensors on the host.

    A value in a function that is being compiled has no device. Compiled programs for GPUs run on the host.
    """

    def replace(operator: Any) -> Any:
        @wraps(operator)
        def call(x: Any, *args: Any, **kwargs: Any) -> Any:
            is_on_host = isinstance(x, Tensor) and device_or_none(x) is CPU
            return (operator if is_on_host else composed)(x, *args, **kwargs)

        return call

    return replace


def _legacy_gemm_epilogue(x: Any, y: Any, bias: Any, *pairs: Any) -> Any:
    """Return the product of the operator of the old kind, whose last arguments are names and values."""
    values = dict(zip(pairs[::2], pairs[1::2], strict=True))
    return paddle._C_ops.fused_gemm_epilogue(x, y, bias, values["trans_x"], values["trans_y"], values["activation"])[0]


OPERATORS = {
    "flash_attn": _on_gpus(_flash_attention),
    "fused_gemm_epilogue": _on_gpus(_gemm_epilogue),
    "fused_softmax_mask": _on_gpus(_softmax_mask),
    "fused_softmax_mask_upper_triangle": _on_gpus(_softmax_mask_upper_triangle),
    "rms_norm": _on_gpus(_rms_norm),
}
"""Operator -> its workaround."""

LEGACY = {"fused_gemm_epilogue": _legacy_gemm_epilogue}
"""Operator of the old kind that only builds for CUDA have -> its replacement."""
