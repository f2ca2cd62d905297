"""Attention computed as the CPU computes it, with the CPU's fused kernel if the CPU would choose it: the same bits.

For an unknown device, PyTorch computes the formula softmax(QK')V, unless the device offers a kernel under an
"overrideable" name. This module offers the CPU's kernel there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from devshim_backends._torch.simulation.hooks import run
from devshim_backends._torch.simulation.internals import nested
from devshim_backends._torch.simulation.internals.patches import install
from devshim_backends._torch.simulation.internals.schemas import plan_of
from devshim_backends._torch.simulation.memory import adopt

aten = torch.ops.aten
_HALVES = (torch.float16, torch.bfloat16)
_FORMULA, _FLASH = 0, 1  # torch.nn.attention.SDPBackend
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
_CPU, _choice = torch._C.DispatchKey.CPU, aten._fused_sdp_choice.default._op_dk
_formula = aten._scaled_dot_product_attention_math.default
_attention, _fused = aten.scaled_dot_product_attention.default, aten._scaled_dot_product_fused_attention_overrideable


def attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Implement ``aten::scaled_dot_product_attention``; C++ finds a device's kernel in a table instead."""
    arguments = (query, key, value, attn_mask, dropout_p, is_causal)
    options = {"scale": scale, "enable_gqa": enable_gqa}
    if is_traceable_wrapper_subclass(query):
        return _attend_as_cuda(arguments, options)
    if _is_only_of_cuda():
        return _formula(*arguments, **options)[0]
    if _is_plain(query, key, value):
        mask = _to_additive_mask(attn_mask, query)
        if _choose_kernel((query, key, value, mask, dropout_p, is_causal), options) == _FLASH:
            return _fused(query, key, value, mask, dropout_p, is_causal, scale=scale)[0]
    return _attention._op_dk(_COMPOSITE, *arguments, **options)


def nested_attention(query: Any, key: Any, value: Any, attn_mask: Any = None, *args: Any, **options: Any) -> Any:
    """Implement the same for nested tensors; on a GPU the sequences are computed one by one, in any layout, as on CUDA.

    The formula of C++, which also serves as the answer with a mask, needs contiguous tensors without a causal mask.
    """
    if attn_mask is not None or query.get_device() < 0:
        return _attention._op_dk(_COMPOSITE, query, key, value, attn_mask, *args, **options)
    return nested.attention(query, key, value, lambda q, k, v: _attention(q, k, v, None, *args, **options))


def _attend_as_cuda(arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Attend with the operator that CUDA would choose: `DTensor` and other wrappers of tensors know only these."""
    query, key, value, mask, dropout, causal = arguments
    scale, allowed = options["scale"], torch._C
    if query.dim() != 4 or options["enable_gqa"] or (causal and mask is not None):
        return _formula(*arguments, **options)[0]
    is_half, same_length = query.dtype in _HALVES, query.shape[-2] == key.shape[-2]
    if is_half and mask is None and allowed._get_flash_sdp_enabled() and (same_length or not causal):
        return aten._scaled_dot_product_flash_attention.default(query, key, value, dropout, causal, scale=scale)[0]
    if mask is not None:
        mask = _to_additive_mask(mask, query).expand(*query.shape[:-1], key.shape[-2])
    needs_sums = torch.is_grad_enabled() and any(each.requires_grad for each in (query, key, value))
    rest = (mask, needs_sums, dropout, causal)
    if (is_half or query.dtype is torch.float32) and allowed._get_mem_efficient_sdp_enabled():
        return aten._scaled_dot_product_efficient_attention.default(query, key, value, *rest, scale=scale)[0]
    if is_half and allowed._get_cudnn_sdp_enabled():
        return aten._scaled_dot_product_cudnn_attention.default(query, key, value, *rest, scale=scale)[0]
    return _formula(*arguments, **options)[0]


def _is_only_of_cuda() -> bool:
    """Return True if the program allows only kernels that exist only for CUDA; the formula is then computed."""
    allowed = torch._C
    if allowed._get_math_sdp_enabled() or allowed._get_flash_sdp_enabled():
        return False
    return bool(allowed._get_mem_efficient_sdp_enabled() or allowed._get_cudnn_sdp_enabled())


def _is_plain(query: Any, key: Any, value: Any) -> bool:
    """Return True if these hold data on one GPU; others (the compiler's, ``torch.func``'s) use PyTorch's formula."""
    if torch._C._len_torch_dispatch_stack() or not query.get_device() == key.get_device() == value.get_device():
        return False
    return not any(map(torch._C._functorch.is_functorch_wrapped_tensor, (query, key, value)))


def _to_additive_mask(mask: Any, query: Any) -> Any:
    """Return a boolean mask as a mask to add, as PyTorch does."""
    if mask is None or mask.dtype is not torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=query.dtype).masked_fill_(mask.logical_not(), float("-inf"))


def _choose_kernel(arguments: tuple[Any, ...], options: dict[str, Any]) -> int:
    """Return the implementation that the CPU would choose; the CPU's kernel has no gradient for the mask."""
    mask = arguments[3]
    if mask is not None and (mask.requires_grad or mask.get_device() != arguments[0].get_device()):
        return _FORMULA
    return int(_choice(_CPU, *arguments, **options))  # which reads no values, so no relabelling is needed


def fused_attention(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    dropout: float = 0.0,
    causal: bool = False,
    debug: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    """Implement ``aten::_scaled_dot_product_fused_attention_overrideable``."""
    flash = plan_of(aten._scaled_dot_product_flash_attention_for_cpu.default)
    out, sums = run(flash, (query, key, value, dropout, causal), {"attn_mask": bias, "scale": scale})
    # Unused: CUDA's kernels return the sequences' ends and the state of their random numbers here.
    unused = adopt(torch.empty(0, dtype=query.dtype, device="cpu"), query.get_device())
    return out, sums, unused, unused, query.shape[-2], key.shape[-2], unused, unused, unused


def fused_attention_backward(
    grad: Any,
    query: Any,
    key: Any,
    value: Any,
    bias: Any,
    grad_input_mask: Any,
    out: Any,
    sums: Any,
    *rest: Any,
    scale: float | None = None,
) -> tuple[Any, ...]:
    """Implement ``aten::_scaled_dot_product_fused_attention_overrideable_backward``."""
    dropout, causal = rest[4:6]
    flash = plan_of(aten._scaled_dot_product_flash_attention_for_cpu_backward.default)
    arguments = (grad, query, key, value, out, sums, dropout, causal)
    return (*run(flash, arguments, {"attn_mask": bias, "scale": scale}), None)


def _can_use(
    real: Callable[..., bool], dtypes: tuple[Any, ...], of_jagged: tuple[Any, ...] = ()
) -> Callable[..., bool]:
    """Return a replacement for a function that tests if an attention kernel of CUDA supports its arguments.

    Attention of jagged tensors, which is written in Python, chooses its kernel by these functions.

    Args:
        real: The function, which answers for tensors on other devices.
        dtypes: The dtypes of the kernel.
        of_jagged: Further dtypes for jagged tensors, for which CUDA uses nested tensors of the older kind.
    """

    def can_use(params: Any, debug: bool = False) -> bool:
        query = params.query
        if query.get_device() < 0:
            return real(params, debug)
        return bool(query.dtype in dtypes or (query.is_nested and query.dtype in of_jagged))

    return can_use


def patch() -> None:
    """Let the kernels of CUDA be chosen for tensors on simulated GPUs."""
    for name, dtypes, of_jagged in (
        ("_can_use_flash_attention", _HALVES, ()),
        ("_can_use_cudnn_attention", _HALVES, ()),
        ("_can_use_mem_efficient_attention", (*_HALVES, torch.float32), (torch.float64,)),
    ):
        install(torch._C, name, _can_use(getattr(torch._C, name), dtypes, of_jagged))


ATTENTION_KERNELS: Mapping[str, Callable[..., Any]] = {
    "_scaled_dot_product_fused_attention_overrideable": fused_attention,
    "_scaled_dot_product_fused_attention_overrideable_backward": fused_attention_backward,
}
"""Operator -> its kernel at PrivateUse1."""
