"""Operators whose kernel Paddle has only in its builds for CUDA, which simulated GPUs refuse.

Simulated GPUs compute with the kernels of Paddle's build for the CPU. A kernel that this build lacks is not registered,
or it raises an error that says that it works on GPUs only. The texts below are those of 3.0 to 3.3.
"""

from __future__ import annotations

import re
from typing import Any

from paddle.base import framework

from devshim.devices.device import CPU
from devshim.errors import UnsupportedError
from devshim.transfers.observers import site
from devshim_backends._paddle.capabilities import CUDA_KERNELS, NO_KERNEL
from devshim_backends._paddle.devices import core
from devshim_backends._paddle.simulation.device_rules import device_or_none, tensors_in

__all__ = ["error_for", "refusal"]

_NOT_REGISTERED = re.compile(
    r"kernel `(\w+)` is not registered(?:\.\s+\[Hint: Expected iter != kernels_| and fail to fallback to CPU one)"
)
_LACKS_DTYPE = re.compile(r"Paddle support following Backends:[^[]*\bCPU\b")
"""The rest of the text for a kernel that exists for the CPU, but not for a dtype; real GPUs refuse dtypes like that."""
_ONLY_ON_GPUS = re.compile(
    r"only supports? GPU|for cpu kernel|CPU kernel (?:for|of)|CPU is not support|in CPU mode"
    r"|not (?:supported|implemented) on (?:the )?CPU",
    re.IGNORECASE,
)
_CALLERS = {
    "calc_reduced_attn_scores": "calc_reduced_attention_scores",
    "flash_attn_v3_varlen": "flash_attn_varlen_func",
    "flashmask_attention_v2": "flashmask_attention",
    "fused_attention": "fused_multi_head_attention",
    "fused_stack_quant": "fused_stack_transpose_quant",
}
"""Operator -> the function that calls it, if its name is another one."""

_NAMED = re.compile(r"support (\w+) (?:op )?for cpu kernel")
_GENERAL_HINT = "use other functions of Paddle, or run this part on a real GPU"


def refusal(error: Exception, called: str, args: tuple[Any, ...]) -> UnsupportedError | None:
    """Return the error that replaces Paddle's, or None if Paddle's is not about a missing kernel on a GPU.

    Args:
        error: Paddle's error.
        called: Paddle's name of the function that raised it.
        args: The function's arguments.
    """
    text = str(error)
    found = _NOT_REGISTERED.search(text)
    if found is None:
        is_missing = _ONLY_ON_GPUS.search(text) is not None
        named = _NAMED.search(text)  # in a compiled program, `called` is what runs the program
        called = called if named is None else named[1]
    else:
        called = found[1]
        is_missing = _LACKS_DTYPE.search(text) is None or _public_name(called) is not None
    return error_for(called) if is_missing and _is_on_gpu(args) else None


def error_for(operator: str) -> UnsupportedError:
    """Return the error for an operator without a kernel; it names the function that programs call, if it is known."""
    name = _public_name(operator)
    what = f"Paddle's operator {operator}" if name is None else name
    hint = _GENERAL_HINT if name is None else CUDA_KERNELS[name]
    return UnsupportedError(f"simulated GPUs do not support {what}, which {site()} calls: {NO_KERNEL}", hint)


def _public_name(operator: str) -> str | None:
    """Return the name in `CUDA_KERNELS` of the function that calls an operator, or None."""
    operator = operator.rstrip("_")
    called = _CALLERS.get(operator, operator)
    return next((each for each in CUDA_KERNELS if each.rpartition(".")[2].rstrip("_") == called), None)


def _is_on_gpu(args: tuple[Any, ...]) -> bool:
    """Return True if one of the tensors is on a simulated GPU; without tensors, if a GPU is the default device."""
    devices = [device_or_none(x) for x in tensors_in(args)]
    if devices:
        return any(device is not None and device is not CPU for device in devices)
    return isinstance(framework._current_expected_place_(), core.CustomPlace)
