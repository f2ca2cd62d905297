"""Nested tensors of layout strided on simulated GPUs: a buffer on the GPU, and sizes, strides and offsets on the host.

A capsule cannot hold a nested tensor, so its buffer is relabelled, and a new nested tensor is made over it: the memory
stays shared. Views are made by the CPU's kernels from the GPU's tensor itself, because they touch no memory.

CUDA's operators on nested tensors are those of the CPU, except those in `LACKING`, and fused attention.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from devshim_backends._torch.simulation.internals.state import require_simulated

aten = torch.ops.aten
_Key = torch._C.DispatchKey
FORM = "NestedTensor"
_NESTED, _CPU = _Key.NestedTensorCPU, _Key.CPU
_over_buffer = aten._nested_view_from_buffer.default._op_dk
_buffer = aten.values.default._op_dk

LACKING = ("is_pinned", "_pin_memory", "sum.dim_IntList", "_nested_sum_backward")
"""Operators on nested tensors that PyTorch has for the CPU, and not for CUDA.

Source: ``native_functions.yaml`` of PyTorch 2.13, the only difference of ``NestedTensorCPU`` and ``NestedTensorCUDA``
beside fused attention.
"""
_FOR_TESTS = "_test_"
_LAYOUT = ("_nested_tensor_size", "_nested_tensor_strides", "_nested_tensor_storage_offsets")
"""Operators that return the tensors on the host which describe a nested tensor."""
_read_layout = [getattr(aten, name).default._op_dk for name in _LAYOUT]


def move_buffer(tensor: Any, move: Callable[[Any], Any]) -> Any:
    """Return a nested tensor with the same layout over the buffer that ``move`` returns."""
    return _over_buffer(_CPU, move(buffer_of(tensor)), *[read(_NESTED, tensor) for read in _read_layout])


def buffer_of(tensor: Any) -> Any:
    """Return all the memory of a nested tensor as a tensor with one dimension."""
    return _buffer(_NESTED, tensor)


def view(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return a view of a GPU's nested tensor, or a description of its layout, by the CPU's kernel."""
    require_simulated(args[0].get_device())
    return op(_NESTED, *args, **kwargs)


def layout_kernels() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the name and kernel of each operator that returns a part of the layout."""
    for name, read in zip(_LAYOUT, _read_layout, strict=True):
        yield name, _reader(read)


def _reader(read: Callable[..., Any]) -> Callable[..., Any]:
    def kernel(tensor: Any) -> Any:
        return read(_NESTED, tensor)

    return kernel


def names() -> list[str]:
    """Return the operators that both the CPU and CUDA have for nested tensors."""
    registered = torch._C._dispatch_get_registrations_for_dispatch_key("NestedTensorCPU")
    own = {name.removeprefix("aten::") for name in registered if name.startswith("aten::")}
    return sorted(name for name in own - set(LACKING) if not name.startswith(_FOR_TESTS))


def copy_over_buffer(buffer: Any, sizes: Any, strides: Any, offsets: Any) -> Any:
    """Implement ``aten::_nested_view_from_buffer_copy``: the layout is on the host, where PyTorch would look for it."""
    return _over_buffer(_CPU, buffer.clone(), sizes, strides, offsets)


def dropout(x: Any, p: float, train: bool | None) -> tuple[Any, Any]:
    """Implement ``aten::native_dropout`` with the numbers that the GPU's own generator draws for a dense tensor."""
    masks: list[Any] = []

    def drop(buffer: Any) -> Any:
        dropped, mask = aten.native_dropout.default(buffer, p, train)
        masks.append(mask)
        return dropped

    return move_buffer(x, drop), move_buffer(x, lambda _: masks[0])


def dropout_backward(grad: Any, mask: Any, scale: float) -> Any:
    """Implement ``aten::native_dropout_backward``."""
    if not grad.is_contiguous():
        grad = grad.contiguous()
    return move_buffer(grad, lambda buffer: aten.native_dropout_backward.default(buffer, buffer_of(mask), scale))


def attention(query: Any, key: Any, value: Any, attend: Callable[..., Any]) -> Any:
    """Return the attention of the sequences, computed one by one: CUDA's kernels have one call for all of them."""
    parts = zip(*[each.unbind() for each in (query, key, value)], strict=True)
    return torch.nested.as_nested_tensor([attend(*[each.unsqueeze(0) for each in part]).squeeze(0) for part in parts])
