"""Operators that need a kernel of their own: creating, copying, reading and drawing random numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from devshim_backends._torch.simulation.attention import ATTENTION
from devshim_backends._torch.simulation.device_rules import mixed
from devshim_backends._torch.simulation.generators import DEFAULTS
from devshim_backends._torch.simulation.memory import adopt
from devshim_backends._torch.simulation.recurrent_cells import CELLS
from devshim_backends._torch.simulation.relabel import to_host, to_host_lazily
from devshim_backends._torch.simulation.schemas import plan_of
from devshim_backends._torch.simulation.state import NAME, checked, index_of
from devshim_backends._torch.simulation.storages import STORAGES

aten = torch.ops.aten
_CPU = torch.device("cpu")
# PyTorch's own bindings are four times as fast as `torch.ops`. No user mode takes part (see `dispatch.unseen`).
_empty, _empty_strided = torch.empty, torch.empty_strided
_copy, _to, _scalar = torch._C.TensorBase.copy_, torch._C.TensorBase.to, torch._C.TensorBase.item


def _require_strided(layout: Any) -> None:
    if layout is not None and layout is not torch.strided:
        raise NotImplementedError(f"a simulated GPU holds dense tensors, and {layout} was asked for")


def empty(
    size: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
    memory_format: Any = None,
) -> Any:
    """Implement ``aten::empty.memory_format``."""
    _require_strided(layout)
    if memory_format is None:
        return adopt(_empty(size, dtype=dtype, device=_CPU), index_of(device))
    return adopt(_empty(size, dtype=dtype, device=_CPU, memory_format=memory_format), index_of(device))


def empty_strided(
    size: Any, stride: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None
) -> Any:
    """Implement ``aten::empty_strided``."""
    _require_strided(layout)
    return adopt(_empty_strided(size, stride, dtype=dtype, device=_CPU), index_of(device))


def zeros(size: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None) -> Any:
    """Implement ``aten::_efficientzerotensor``: the CPU's has no memory to relabel; this one has."""
    return adopt(aten.zeros.default(size, dtype=dtype, device=_CPU), index_of(device))


def copy(target: Any, source: Any, non_blocking: bool = False) -> Any:
    """Implement ``aten::copy_``: at least one side is a simulated GPU."""
    _copy(_seen(target), _seen(source))
    return target


def copy_from(source: Any, target: Any, non_blocking: bool = False) -> Any:
    """Implement ``aten::_copy_from``: at least one side is a simulated GPU."""
    _copy(_seen(target), _seen(source))
    return target


def to_copy(
    x: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
    non_blocking: bool = False,
    memory_format: Any = None,
) -> Any:
    """Implement ``aten::_to_copy``: a copy from or to a simulated GPU, possibly in another dtype."""
    seen = _seen(x)
    keep = torch.preserve_format if memory_format is None else memory_format
    made = _to(seen, device=_CPU, dtype=dtype or x.dtype, copy=True, memory_format=keep)
    if device is None:
        return adopt(made, x.get_device())
    if device == _CPU:
        return made
    return adopt(made, index_of(device)) if device.type == NAME else _to(made, device)


def _seen(tensor: Any) -> Any:
    """Return a tensor as a host tensor, including its conjugation or negation, which DLPack cannot express."""
    index = tensor.get_device()
    if index < 0:
        return tensor
    checked(index)
    return to_host_lazily(tensor)


def copy_from_and_resize(source: Any, target: Any) -> Any:
    """Implement ``aten::_copy_from_and_resize``."""
    aten.resize_.default(target, source.shape)
    return copy_from(source, target)


def read_scalar(tensor: Any) -> Any:
    """Implement ``aten::_local_scalar_dense``, which is ``x.item()``."""
    return read(tensor)


def read(tensor: Any) -> Any:
    """Return a GPU's number; this function is patched while a guard is open."""
    checked(tensor.get_device())
    return _scalar(to_host(tensor))


def native_dropout(x: Any, p: float, train: bool | None) -> tuple[Any, Any]:
    """Implement ``aten::native_dropout``, which accelerators use, with the same bits as the CPU's ``dropout``."""
    card = checked(x.get_device())
    seen = to_host(x)
    if train is False or not seen.numel():
        kept = aten.ones_like.default(seen, dtype=torch.bool)
        return adopt(aten.clone.default(seen), card), adopt(kept, card)
    noise = aten.bernoulli_.float(aten.empty_like.default(seen), 1 - p, generator=DEFAULTS[card])
    kept = aten._to_copy.default(noise, dtype=torch.bool)
    if p < 1:
        noise = aten.div_.Scalar(noise, 1 - p)
    return adopt(aten.mul.Tensor(seen, noise), card), adopt(kept, card)


def native_dropout_backward(grad: Any, kept: Any, scale: float) -> Any:
    """Implement ``aten::native_dropout_backward``: multiply by the same factors as the forward pass."""
    card = checked(grad.get_device())
    if not grad.is_floating_point():
        return adopt(aten.native_dropout_backward.default(to_host(grad), to_host(kept), scale), card)
    noise = aten._to_copy.default(to_host(kept), dtype=grad.dtype)
    noise = aten.div_.Scalar(noise, 1 / scale) if scale else aten.zero_.default(noise)
    return adopt(aten.mul.Tensor(to_host(grad), noise), card)


def sparse_mm_reduce(matrix: Any, dense: Any, reduce: str) -> tuple[Any, Any]:
    """Implement ``aten::_sparse_mm_reduce_impl``: the CPU's saves data for backward only if a gradient is required."""
    card = checked(matrix.get_device())
    if dense.get_device() != card:
        raise mixed(plan_of(aten._sparse_mm_reduce_impl.default), str(matrix.device), dense.device, 1)
    seen = to_host_lazily(matrix).requires_grad_(matrix.requires_grad or dense.requires_grad)
    result, positions = aten._sparse_mm_reduce_impl.default(seen, to_host(dense), reduce)
    return adopt(result, card), adopt(positions, card)


def is_set_to(x: Any, other: Any) -> Any:
    """Implement ``aten::is_set_to``: it compares storages, and relabelling would make two of one."""
    checked(x.get_device())
    return aten.is_set_to.default._op_dk(torch._C.DispatchKey.CPU, x, other)


def addbmm(x: Any, batch1: Any, batch2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """Implement ``aten::addbmm_``: the CPU's uses the target through two tensors, which relabelling would separate."""
    return x.copy_(aten.addbmm.default(x, batch1, batch2, beta=beta, alpha=alpha))


KERNELS: Mapping[str, Callable[..., Any]] = {
    **STORAGES,
    **CELLS,
    **ATTENTION,
    "empty.memory_format": empty,
    "empty_strided": empty_strided,
    "_efficientzerotensor": zeros,
    "copy_": copy,
    "_copy_from": copy_from,
    "_to_copy": to_copy,
    "_copy_from_and_resize": copy_from_and_resize,
    "_local_scalar_dense": read_scalar,
    "native_dropout": native_dropout,
    "native_dropout_backward": native_dropout_backward,
    "addbmm_": addbmm,
    "is_set_to": is_set_to,
    "record_stream": lambda tensor, stream: None,
    # Attention with padding uses nested tensors, which simulated GPUs do not support, only for left-aligned masks.
    "_nested_tensor_from_mask_left_aligned": lambda tensor, mask: False,
    "_fused_sdp_choice": lambda *args, **kwargs: 0,  # no CUDA kernel is chosen: see `attention`
}
"""Operator -> its kernel at PrivateUse1."""
