"""CUDA's operators for memory-efficient attention and cuDNN's; `attention_formula` computes them.

They are used where those of flash attention are (see `flash_attention`), in other dtypes or with a mask.
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

_ALIGNED = 32
"""The memory-efficient kernel rounds the number of its logarithms up to a multiple of this."""


def _padded(sums: Any, length: int) -> Any:
    """Return logarithms with infinity up to the length that the memory-efficient kernel gives them."""
    return torch.nn.functional.pad(sums, (0, -(-length // _ALIGNED) * _ALIGNED - sums.shape[-1]), value=torch.inf)


def _efficient_call(kind: int, dropout: float, scale: float | None, seed: int) -> Call:
    """Return the settings of a call: 1 and 2 are the kinds of causal masks, from the first and from the last query."""
    return Call(Window(right=0 if kind else None, from_end=kind == 2), dropout, scale, seed)


def efficient_forward(
    query: Any,
    key: Any,
    value: Any,
    bias: Any,
    ends_q: Any,
    ends_k: Any,
    max_q: int | None,
    max_k: int | None,
    dropout: float,
    kind: int,
    compute_sums: bool = False,
    *,
    scale: float | None = None,
    **others: Any,
) -> tuple[Any, ...]:
    """Implement ``aten::_efficient_attention_forward``."""
    refuse_others(others)
    call = _efficient_call(kind, dropout, scale, new_seed(dropout, query))
    out, parts = forward(query, key, value, bias, pair(ends_q, ends_k), call)
    length = query.shape[1] if max_q is None or ends_q is None else max_q
    sums = torch.cat([_padded(each, length if compute_sums else 0) for each in parts])
    state = numbers(call.seed, query), numbers(0, query)
    return out, sums, *state, length, key.shape[1] if max_k is None or ends_k is None else max_k


def efficient_backward(
    grad: Any,
    query: Any,
    key: Any,
    value: Any,
    bias: Any,
    out: Any,
    ends_q: Any,
    ends_k: Any,
    max_q: int,
    max_k: int,
    sums: Any,
    dropout: float,
    seed: Any,
    offset: Any,
    kind: int,
    bias_requires_grad: bool,
    *,
    scale: float | None = None,
    **others: Any,
) -> tuple[Any, ...]:
    """Implement ``aten::_efficient_attention_backward``."""
    lengths = [query.shape[1]] if ends_q is None else to_host(ends_q).diff().tolist()
    rows = [sums] if ends_q is None else sums.split(1)
    parts = [row[..., :length] for row, length in zip(rows, lengths, strict=True)]
    call = _efficient_call(kind, dropout, scale, seed_of(seed))
    *grads, of_bias = backward(grad, query, key, value, out, parts, bias, pair(ends_q, ends_k), call)
    return *grads, of_bias if bias_requires_grad else None


def scaled_efficient(
    query: Any,
    key: Any,
    value: Any,
    bias: Any,
    compute_sums: bool,
    dropout: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    """Implement ``aten::_scaled_dot_product_efficient_attention``."""
    q, k, v = swap(query, key, value)
    settings = (dropout, int(is_causal), compute_sums)
    out, sums, *state = efficient_forward(q, k, v, bias, None, None, None, None, *settings, scale=scale)
    return *swap(out), sums, *state[:2]


def scaled_efficient_backward(
    grad: Any,
    query: Any,
    key: Any,
    value: Any,
    bias: Any,
    out: Any,
    sums: Any,
    seed: Any,
    offset: Any,
    dropout: float,
    needed: Any,
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    """Implement ``aten::_scaled_dot_product_efficient_attention_backward``."""
    g, q, k, v, o = swap(grad, query, key, value, out)
    sizes, settings = (query.shape[2], key.shape[2]), (int(is_causal), bool(needed[3]))
    before = (sums, dropout, seed, offset)
    grads = efficient_backward(g, q, k, v, bias, o, None, None, *sizes, *before, *settings, scale=scale)
    return *swap(*grads[:3]), grads[3]


def scaled_cudnn(
    query: Any,
    key: Any,
    value: Any,
    bias: Any,
    compute_sums: bool,
    dropout: float = 0.0,
    is_causal: bool = False,
    debug: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    """Implement ``aten::_scaled_dot_product_cudnn_attention``."""
    call = _efficient_call(int(is_causal), dropout, scale, new_seed(dropout, query))
    q, k, v = swap(query, key, value)
    out, (sums,) = forward(q, k, v, bias, None, call)
    state = numbers(call.seed, query), numbers(0, query)
    return *swap(out), sums.unsqueeze(-1), None, None, query.shape[2], key.shape[2], *state, None


def scaled_cudnn_backward(
    grad: Any,
    query: Any,
    key: Any,
    value: Any,
    out: Any,
    sums: Any,
    seed: Any,
    offset: Any,
    bias: Any,
    ends_q: Any,
    ends_k: Any,
    max_q: int,
    max_k: int,
    dropout: float,
    is_causal: bool,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    """Implement ``aten::_scaled_dot_product_cudnn_attention_backward``."""
    call = _efficient_call(int(is_causal), dropout, scale, seed_of(seed))
    g, q, k, v, o = swap(grad, query, key, value, out)
    return tuple(swap(*backward(g, q, k, v, o, [sums.squeeze(-1)], bias, None, call)[:3]))


EFFICIENT_ATTENTION_KERNELS: Mapping[str, Callable[..., Any]] = {
    "_efficient_attention_forward": efficient_forward,
    "_efficient_attention_backward": or_nothing(efficient_backward, 4),
    "_scaled_dot_product_efficient_attention": scaled_efficient,
    "_scaled_dot_product_efficient_attention_backward": or_nothing(scaled_efficient_backward, 4),
    "_scaled_dot_product_cudnn_attention": scaled_cudnn,
    "_scaled_dot_product_cudnn_attention_backward": or_nothing(scaled_cudnn_backward, 3),
}
"""Operator -> its kernel at PrivateUse1."""
