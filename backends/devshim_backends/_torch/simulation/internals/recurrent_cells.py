"""Cells of LSTM and GRU as fused operators, which PyTorch uses on every accelerator and lacks on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch


def lstm(gates: Any, hidden_gates: Any, cell: Any, bias: Any = None, hidden_bias: Any = None) -> tuple[Any, Any, Any]:
    """Implement ``aten::_thnn_fused_lstm_cell``: return the hidden state, the cell and the gates for backward."""
    summed = gates + hidden_gates
    if bias is not None:
        summed = summed + bias + hidden_bias
    i, f, c, o = summed.chunk(4, 1)
    i, f, c, o = i.sigmoid(), f.sigmoid(), c.tanh(), o.sigmoid()
    updated = f * cell + i * c
    return o * updated.tanh(), updated, torch.cat([i, f, c, o], 1)


def lstm_backward(
    grad_hidden: Any, grad_cell: Any, cell: Any, updated: Any, gates: Any, has_bias: bool
) -> tuple[Any, Any, Any]:
    """Implement ``aten::_thnn_fused_lstm_cell_backward_impl``: return the gradients of gates, cell and bias."""
    if grad_hidden is None and grad_cell is None:
        return None, None, None
    i, f, c, o = gates.chunk(4, 1)
    squashed = updated.tanh()
    if grad_hidden is None:
        grad_hidden = torch.zeros_like(cell)
    grad = grad_hidden * o * (1 - squashed * squashed)
    if grad_cell is not None:
        grad = grad + grad_cell
    parts = [
        grad * c * i * (1 - i),
        grad * cell * f * (1 - f),
        grad * i * (1 - c * c),
        grad_hidden * squashed * o * (1 - o),
    ]
    grad_gates = torch.cat(parts, 1)
    return grad_gates, grad * f, grad_gates.sum(0) if has_bias else None


def gru(gates: Any, hidden_gates: Any, hidden: Any, bias: Any = None, hidden_bias: Any = None) -> tuple[Any, Any]:
    """Implement ``aten::_thnn_fused_gru_cell``: return the hidden state, and the values for the backward pass."""
    if bias is not None:
        gates, hidden_gates = gates + bias, hidden_gates + hidden_bias
    input_r, input_z, input_n = gates.chunk(3, 1)
    hidden_r, hidden_z, hidden_n = hidden_gates.chunk(3, 1)
    r, z = (input_r + hidden_r).sigmoid(), (input_z + hidden_z).sigmoid()
    n = (input_n + r * hidden_n).tanh()
    return n + z * (hidden - n), torch.cat([r, z, n, hidden, hidden_n], 1)


def gru_backward(grad: Any, workspace: Any, has_bias: bool) -> tuple[Any, Any, Any, Any, Any]:
    """Implement ``aten::_thnn_fused_gru_cell_backward``: gradients of both gates, hidden state and both biases."""
    r, z, n, hidden, hidden_n = workspace.chunk(5, 1)
    grad_z = grad * (hidden - n) * z * (1 - z)
    grad_n = grad * (1 - z) * (1 - n * n)
    grad_r = grad_n * hidden_n * r * (1 - r)
    of_input = torch.cat([grad_r, grad_z, grad_n], 1)
    of_hidden = torch.cat([grad_r, grad_z, grad_n * r], 1)
    biases = (of_input.sum(0), of_hidden.sum(0)) if has_bias else (None, None)
    return (of_input, of_hidden, grad * z, *biases)


CELL_KERNELS: Mapping[str, Callable[..., Any]] = {
    "_thnn_fused_lstm_cell": lstm,
    "_thnn_fused_lstm_cell_backward_impl": lstm_backward,
    "_thnn_fused_gru_cell": gru,
    "_thnn_fused_gru_cell_backward": gru_backward,
}
"""Operator -> its kernel at PrivateUse1."""
