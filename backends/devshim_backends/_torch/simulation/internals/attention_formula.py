"""The formula of attention, softmax(QK')V, and its gradient; halves are computed in float32, as on CUDA.

Queries, keys and values have the shape (..., length, heads, size) here. Several sequences may be packed into one
tensor, one after the other; the ends of the sequences are then given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch

from devshim_backends._torch.simulation.internals.generators import DEFAULTS
from devshim_backends._torch.simulation.internals.relabel import to_host
from devshim_backends._torch.simulation.memory import adopt

_HALVES = (torch.float16, torch.bfloat16)


class Window(NamedTuple):
    """The keys that a query sees, counted from its own position: None means no limit.

    Attributes:
        left: The number of keys before it.
        right: The number of keys after it.
        from_end: True if the last query is at the position of the last key; otherwise the first ones are together.
    """

    left: int | None = None
    right: int | None = None
    from_end: bool = True


class Call(NamedTuple):
    """The settings of one call."""

    window: Window
    dropout: float
    scale: float | None
    seed: int


def _wide(x: Any) -> Any:
    return x.float() if x.dtype in _HALVES else x


def _scale(call: Call, query: Any) -> float:
    return float(query.shape[-1] ** -0.5 if call.scale is None else call.scale)


def _scores(query: Any, key: Any, bias: Any, call: Call) -> Any:
    """Return the scaled products of queries and keys, with minus infinity for a key that a query does not see."""
    scores = query @ key.mT * _scale(call, query)
    if bias is not None:
        scores = scores + bias
    left, right, from_end = call.window
    if left is None and right is None:
        return scores
    queries, keys = scores.shape[-2:]
    at = torch.arange(queries, device=scores.device).unsqueeze(-1) + (keys - queries if from_end else 0)
    others = torch.arange(keys, device=scores.device)
    hidden = torch.zeros(queries, keys, dtype=torch.bool, device=scores.device)
    if left is not None:
        hidden |= others < at - left
    if right is not None:
        hidden |= others > at + right
    return scores.masked_fill(hidden, -torch.inf)


def _kept(scores: Any, call: Call, generator: Any) -> Any:
    """Return the factor of each weight: 0 for one that is dropped; the same again from a generator of the same seed."""
    if not call.dropout:
        return 1.0
    drawn = torch.empty(scores.shape, dtype=scores.dtype, device="cpu").bernoulli_(
        1 - call.dropout, generator=generator
    )
    return adopt(drawn.div_(1 - call.dropout), scores.get_device())


def _heads_first(x: Any, queries: Any = None) -> Any:
    """Return a tensor as (..., heads, length, size); several heads of queries may share one of keys and values."""
    x = _wide(x).transpose(-3, -2)
    shared = 1 if queries is None else queries.shape[-2] // x.shape[-3]
    return x if shared == 1 else x.repeat_interleave(shared, -3)


def _sum_shared(gradient: Any, like: Any) -> Any:
    """Return the gradient of keys or values in their own shape and dtype."""
    shared = gradient.shape[-3] // like.shape[-2]
    if shared != 1:
        gradient = gradient.unflatten(-3, (-1, shared)).sum(-3)
    return gradient.transpose(-3, -2).to(like.dtype)


def _sequences(ends: Any, *tensors: Any) -> Iterator[list[Any]]:
    """Yield the part of each tensor for each sequence; ``ends`` are those of queries and of keys, or None.

    The second and the third tensor have the length of the keys, and the others that of the queries.
    """
    if ends is None:
        yield list(tensors)
        return
    of_queries, of_keys = (to_host(each).tolist() for each in ends)
    bounds = [of_keys if position in (1, 2) else of_queries for position in range(len(tensors))]
    for number in range(len(of_queries) - 1):
        parts = zip(tensors, bounds, strict=True)
        yield [x.narrow(-3, bound[number], bound[number + 1] - bound[number]) for x, bound in parts]


def _generator(call: Call) -> Any:
    return torch._C.Generator(device="cpu").manual_seed(call.seed) if call.dropout else None


def forward(query: Any, key: Any, value: Any, bias: Any, ends: Any, call: Call) -> tuple[Any, list[Any]]:
    """Return the attention, and the logarithms of the sums of each sequence, as (..., heads, length)."""
    result = query.new_empty((*query.shape[:-1], value.shape[-1]))
    generator, logarithms = _generator(call), []
    for q, k, v, out in _sequences(ends, query, key, value, result):
        scores = _scores(_heads_first(q), _heads_first(k, q), bias, call)
        sums = scores.logsumexp(-1)
        sums = sums.masked_fill(sums == -torch.inf, torch.inf)  # such a query sees no key, and its result is 0
        weights = (scores - sums.unsqueeze(-1)).exp() * _kept(scores, call, generator)
        out.copy_((weights @ _heads_first(v, q)).transpose(-3, -2))
        logarithms.append(sums)
    return result, logarithms


def backward(
    grad: Any, query: Any, key: Any, value: Any, out: Any, logarithms: list[Any], bias: Any, ends: Any, call: Call
) -> tuple[Any, Any, Any, Any]:
    """Return the gradients of queries, keys, values and the bias."""
    grads = [torch.empty_like(x) for x in (query, key, value)]
    generator, of_bias = _generator(call), None
    parts = zip(_sequences(ends, query, key, value, out, grad), _sequences(ends, *grads), logarithms, strict=True)
    for (q, k, v, o, g), (grad_q, grad_k, grad_v), sums in parts:
        queries, keys, values, above = _heads_first(q), _heads_first(k, q), _heads_first(v, q), _heads_first(g)
        weights = (_scores(queries, keys, bias, call) - sums.unsqueeze(-1)).exp()
        kept = _kept(weights, call, generator)
        of_weights = above @ values.mT * kept
        of_scores = weights * (of_weights - (above * _heads_first(o)).sum(-1, keepdim=True))
        grad_q.copy_(_sum_shared(of_scores @ keys * _scale(call, queries), q))
        grad_k.copy_(_sum_shared(of_scores.mT @ queries * _scale(call, queries), k))
        grad_v.copy_(_sum_shared((weights * kept).mT @ above, v))
        of_bias = None if bias is None else of_scores.to(bias.dtype)
    return (*grads, of_bias)


# ---------------------------------------------------------------------- arguments of CUDA's operators
def pair(ends_q: Any, ends_k: Any) -> Any:
    """Return the ends of packed sequences, or None if the sequences are not packed."""
    return None if ends_q is None else (ends_q, ends_k)


def new_seed(dropout: float, query: Any) -> int:
    """Return a seed that the GPU's own generator draws, or 0 if nothing is dropped."""
    if not dropout:
        return 0
    return int(torch.randint(1 << 62, (), generator=DEFAULTS[query.get_device()].host, device="cpu"))


def numbers(values: Any, like: Any, dtype: Any = torch.int64) -> Any:
    """Return integers as a tensor on the GPU of another one."""
    return adopt(torch.tensor(values, dtype=dtype, device="cpu"), like.get_device())


def seed_of(state: Any) -> int:
    """Return the seed in the state that a forward pass returned."""
    return 0 if state is None else int(to_host(state).view(-1)[0])


def swap(*tensors: Any) -> list[Any]:
    """Swap heads and length."""
    return [x.transpose(1, 2) for x in tensors]


def refuse_others(others: Mapping[str, Any]) -> None:
    """Refuse the arguments that only the newest kernels have."""
    given = [name for name, value in others.items() if value is not None and not name.startswith("num_splits")]
    if given and others[given[0]] is not False:
        msg = f"simulated GPUs do not support {given[0]} in fused attention"
        raise NotImplementedError(msg)


def or_nothing(kernel: Callable[..., Any], count: int) -> Callable[..., Any]:
    """Return a kernel of a gradient that returns no gradients if none arrives, as CUDA's do."""

    def backward_kernel(grad: Any, *args: Any, **kwargs: Any) -> Any:
        return (None,) * count if grad is None else kernel(grad, *args, **kwargs)

    return backward_kernel
