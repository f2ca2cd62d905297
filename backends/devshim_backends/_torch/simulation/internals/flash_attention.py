"""CUDA's operators for flash attention, which PyTorch's CPU build lacks; `attention_formula` computes them.

A `DTensor`, ``context_parallel``, jagged tensors and ``torch.nn.attention.varlen`` use them. Attention of plain tensors
uses the CPU's kernel (see `attention`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from devshim_backends._torch.simulation.internals.attention_formula import (
    Call,
    Window,
    backward,
    forward,
    new_seed,
    numbers,
    or_nothing,
    pair,
    refuse_others,
    seed_of,
    swap,
)
from devshim_backends._torch.simulation.internals.relabel import to_host


def _limit(size: int | None) -> int | None:
    """Return the size of a window; a negative size means no limit."""
    return None if size is None or size < 0 else size


def flash_forward(
    query: Any,
    key: Any,
    value: Any,
    ends_q: Any,
    ends_k: Any,
    max_q: int,
    max_k: int,
    dropout: float,
    is_causal: bool,
    debug: bool,
    *,
    scale: float | None = None,
    window_size_left: int | None = None,
    window_size_right: int | None = None,
    **others: Any,
) -> tuple[Any, ...]:
    """Implement ``aten::_flash_attention_forward``."""
    refuse_others(others)
    window = Window(_limit(window_size_left), 0 if is_causal else _limit(window_size_right))
    call = Call(window, dropout, scale, new_seed(dropout, query))
    out, sums = forward(query, key, value, None, pair(ends_q, ends_k), call)
    state, unused = numbers([call.seed, 0], query, torch.uint64), numbers(0, query, torch.uint64)
    return out, torch.cat(sums, -1), state, unused, query.new_empty(0)


def flash_backward(
    grad: Any,
    query: Any,
    key: Any,
    value: Any,
    out: Any,
    sums: Any,
    ends_q: Any,
    ends_k: Any,
    max_q: int,
    max_k: int,
    dropout: float,
    is_causal: bool,
    state: Any,
    unused: Any,
    *,
    scale: float | None = None,
    window_size_left: int | None = None,
    window_size_right: int | None = None,
) -> tuple[Any, Any, Any]:
    """Implement ``aten::_flash_attention_backward``."""
    window = Window(_limit(window_size_left), 0 if is_causal else _limit(window_size_right))
    call, ends = Call(window, dropout, scale, seed_of(state)), pair(ends_q, ends_k)
    parts = [sums] if ends is None else sums.split(to_host(ends_q).diff().tolist(), -1)
    return backward(grad, query, key, value, out, parts, None, ends, call)[:3]


def scaled_flash(
    query: Any,
    key: Any,
    value: Any,
    dropout: float = 0.0,
    is_causal: bool = False,
    debug: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    """Implement ``aten::_scaled_dot_product_flash_attention``."""
    q, k, v = swap(query, key, value)
    sizes = query.shape[2], key.shape[2]
    out, sums, *state = flash_forward(q, k, v, None, None, *sizes, dropout, is_causal, debug, scale=scale)
    return *swap(out), sums, None, None, *sizes, *state


def scaled_flash_backward(
    grad: Any, query: Any, key: Any, value: Any, out: Any, sums: Any, *rest: Any, scale: float | None = None
) -> tuple[Any, ...]:
    """Implement ``aten::_scaled_dot_product_flash_attention_backward``."""
    g, q, k, v, o = swap(grad, query, key, value, out)
    ends_q, ends_k, max_q, max_k, dropout, causal, state, unused = rest
    before = (ends_q, ends_k, max_q, max_k)
    return tuple(swap(*flash_backward(g, q, k, v, o, sums, *before, dropout, causal, state, unused, scale=scale)))


FLASH_ATTENTION_KERNELS: Mapping[str, Callable[..., Any]] = {
    "_flash_attention_forward": flash_forward,
    "_flash_attention_backward": or_nothing(flash_backward, 3),
    "_scaled_dot_product_flash_attention": scaled_flash,
    "_scaled_dot_product_flash_attention_backward": or_nothing(scaled_flash_backward, 3),
}
"""Operator -> its kernel at PrivateUse1."""
