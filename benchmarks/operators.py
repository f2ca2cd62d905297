"""Operators of PyTorch that a training step of a convolutional, recurrent or transformer net uses, on small tensors.

Each is a statement, which is also its name in the table, separated from the next one by a semicolon or a line's end. On
a simulated GPU, a statement costs a call of Python for each operator that PyTorch makes of it. `COMPOSED` are made of
many, so that they have no target.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

OPERATORS = """
x[1]; x[1, 2]; x[1:3]; x[:, 1]; x[None]; x[..., 0]; x[rows]; x[:, rows]; x[mask]; x[ints, ints]
set_item(out, 0, 1); set_item(out, 0, 1.0); set_item(out, (0, 1), 1.0); set_item(out, slice(1, 3), 0)
set_item(out, (..., 0), 0); set_item(out, 0, b); set_item(out, slice(None), y); set_item(out, rows, 0)
set_item(out, mask, 0.0); set_item(out, rows, y[:2])
x.gather(1, column); x.index_select(0, rows); out.index_add_(0, rows, y[:2]); out.scatter_(1, column, 1.0)
x.masked_fill(mask, 0.0); torch.where(mask, x, y); F.embedding(tokens, x)
x.view(64); x.reshape(4, 16); x.t(); x.transpose(0, 1); x.permute(1, 0); x.unsqueeze(0); x.flatten(); b.expand(8, 8)
x.narrow(0, 1, 3); x.chunk(2); x.split(4); x.unbind(0); x.detach(); x.contiguous(); x.diagonal()
out.add_(y); out.mul_(0.9); out.zero_(); out.clamp_(0, 1); out.copy_(y); out.lerp_(y, 0.1); out.normal_()
out.addcmul_(y, y, value=0.1); out.masked_fill_(mask, 0.0); F.relu(out, inplace=True)
torch.add(x, y, out=out); torch.mm(x, y, out=out); torch.exp(x, out=out)
x + y; x + 1; x * 2.0; x / y; x ** 2; -x; x > y; x.exp(); x.sqrt(); x.tanh(); x.abs(); x.clamp(0, 1); x @ y
torch.bmm(s, s.mT); torch.addmm(b, x, y); x.tril(); x.cumsum(0); x.sum(); x.mean(0); x.max(1); x.argmax(1); x.std()
x.norm(); x.topk(2); x.sort(); mask.any(); x.logsumexp(1); x.sum().item(); torch.cat([x, y]); torch.stack([x, y])
x.repeat(2, 1); x.roll(1, 0); F.pad(x, (1, 1))
torch.zeros(8, 8, device=n); torch.full((8, 8), 1.0, device=n); torch.arange(8, device=n); torch.eye(8, device=n)
torch.linspace(0, 1, 8, device=n); torch.randn(8, 8, device=n); torch.tensor([1.0, 2.0], device=n)
torch.zeros_like(x); torch.randn_like(x); x.clone(); x.double(); x.cpu(); x.to(n)
F.linear(x, y, b); F.conv2d(image, kernel, bias); F.max_pool2d(image, 2); F.adaptive_avg_pool2d(image, 1)
F.batch_norm(image, mean, variance, training=True); F.batch_norm(image, mean, variance); F.layer_norm(x, (8,))
F.layer_norm(x, (8,), b, b); F.group_norm(image, 3); F.dropout(x, 0.5); F.relu(x); F.gelu(x); F.silu(x)
F.softmax(x, -1); F.log_softmax(x, -1); F.cross_entropy(x, ints); F.mse_loss(x, y)
F.scaled_dot_product_attention(q, q, q); F.interpolate(image, scale_factor=2)
torch._foreach_add_(many, others); torch._foreach_mul_(many, 0.9); torch._foreach_zero_(many)
torch._foreach_norm(many); torch._foreach_lerp_(many, others, 0.1); torch._foreach_sqrt(others)
"""
COMPOSED = """
lstm(s); gru(s); attention(s, s, s); F.cross_entropy(x, ints, label_smoothing=0.1)
torch.einsum("ij,jk->ik", x, y); F.cosine_similarity(x, y); F.rms_norm(x, (8,))
"""
BACKWARD = """
x * w; x @ w; F.linear(x, w, b); F.relu(x); F.gelu(x); F.softmax(x, -1); F.cross_entropy(x, ints)
F.embedding(tokens, w); F.conv2d(image, kernel, bias); F.max_pool2d(image, 2); F.layer_norm(x, (8,), b, b)
F.dropout(x, 0.5); F.scaled_dot_product_attention(q, q, q); x[1]; x[1:3]; x[rows]; torch.cat([x, w]); x.sum()
x.view(64)
"""
"""Statements whose backward pass is measured: `torch.autograd.grad` and each operator of the pass."""


def statements(text: str) -> list[str]:
    """Return the statements of one of the tables."""
    return [each.strip() for line in text.splitlines() for each in line.split(";") if each.strip()]


def operators(n: Any) -> dict[str, Callable[[], object]]:
    """Return the work of each statement on a device."""
    import torch

    work = {}
    with torch.no_grad():
        names = _names(n)
    for statement in statements(OPERATORS) + statements(COMPOSED):
        work[statement] = eval(f"lambda: {statement}", names)
    names = {name: _with_gradient(value) for name, value in _names(n).items()}
    for statement in statements(BACKWARD):
        work[f"backward of {statement}"] = _backward(eval(statement, names), names, statement)
    return work


def _names(n: Any) -> dict[str, Any]:
    """Return what the statements use."""
    import torch

    def some(*shape: int) -> Any:
        return torch.rand(shape).to(n)

    x, ints = some(8, 8), torch.arange(8).to(n)
    names = {"torch": torch, "F": torch.nn.functional, "n": n, "set_item": torch.Tensor.__setitem__}
    names |= {"x": x, "y": some(8, 8), "w": some(8, 8), "b": some(8), "out": some(8, 8), "mask": x > 0.5}
    names |= {"rows": torch.tensor([1, 3]).to(n), "ints": ints, "column": ints.view(8, 1)}
    names |= {"tokens": torch.tensor([[1, 2, 3], [0, 4, 5]]).to(n), "s": some(2, 4, 8), "q": some(1, 2, 4, 8)}
    names |= {"image": some(2, 3, 8, 8), "kernel": some(4, 3, 3, 3), "bias": some(4)}
    names |= {"mean": some(3), "variance": some(3)}
    names |= {"many": [some(8, 8) for _ in range(4)], "others": [some(8, 8) for _ in range(4)]}
    names |= {"lstm": torch.nn.LSTM(8, 8).to(n), "gru": torch.nn.GRU(8, 8).to(n)}
    return {**names, "attention": torch.nn.MultiheadAttention(8, 2, batch_first=True).to(n)}


def _with_gradient(value: Any) -> Any:
    import torch

    is_real = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.detach().requires_grad_() if is_real else value


def _backward(result: Any, names: dict[str, Any], statement: str) -> Callable[[], object]:
    """Return the backward pass from a result to the tensors in its statement."""
    import torch

    code = compile(statement, "<statement>", "eval")
    inputs = [names[name] for name in code.co_names if getattr(names.get(name), "requires_grad", False)]
    gradient = torch.ones_like(result)
    return lambda: torch.autograd.grad(result, inputs, gradient, retain_graph=True)
