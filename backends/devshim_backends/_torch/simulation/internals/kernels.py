"""Operators that need their own kernel: creating, copying, reading and drawing random numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from devshim_backends._torch.simulation.internals import late_copies, nested, quantized
from devshim_backends._torch.simulation.internals.attention import ATTENTION_KERNELS
from devshim_backends._torch.simulation.internals.cudnn import CUDNN_KERNELS
from devshim_backends._torch.simulation.internals.efficient_attention import EFFICIENT_ATTENTION_KERNELS
from devshim_backends._torch.simulation.internals.flash_attention import FLASH_ATTENTION_KERNELS
from devshim_backends._torch.simulation.internals.generators import DEFAULTS
from devshim_backends._torch.simulation.internals.int4_weights import INT4_KERNELS
from devshim_backends._torch.simulation.internals.products import PRODUCT_KERNELS
from devshim_backends._torch.simulation.internals.recurrent_cells import CELL_KERNELS
from devshim_backends._torch.simulation.internals.relabel import to_host, to_host_keeping_bits
from devshim_backends._torch.simulation.internals.replaced_data import set_data
from devshim_backends._torch.simulation.internals.semi_structured import SEMI_STRUCTURED_KERNELS
from devshim_backends._torch.simulation.internals.state import TYPES, index_of, require_simulated
from devshim_backends._torch.simulation.internals.sync_batch_norm import SYNC_BATCH_NORM_KERNELS
from devshim_backends._torch.simulation.memory import adopt
from devshim_backends._torch.simulation.storage import STORAGE_KERNELS
from devshim_backends._torch.simulation.tensors import is_pinned

aten = torch.ops.aten
_CPU = torch.device("cpu")
# PyTorch's own bindings are four times as fast as `torch.ops`. No user mode takes part (see `hooks.without_modes`).
_empty, _empty_strided = torch.empty, torch.empty_strided
_copy, _to, _scalar = torch._C.TensorBase.copy_, torch._C.TensorBase.to, torch._C.TensorBase.item


def _require_strided(layout: Any) -> None:
    if layout is not None and layout is not torch.strided:
        msg = f"this operator makes only dense tensors on a simulated GPU, not {layout}"
        raise NotImplementedError(msg)


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


def _factory(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a kernel that makes a tensor by a function of PyTorch."""

    def kernel(*args: Any, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None) -> Any:
        _require_strided(layout)
        return adopt(function(*args, dtype=dtype, device=_CPU), index_of(device))

    return kernel


zeros = _factory(torch.zeros)
"""Also the kernel of ``aten::_efficientzerotensor``: the CPU's result has no memory to relabel; this one has."""


on_blocking_copy: Callable[[], None] | None = None
"""Called before each copy between a GPU and the host that blocks, if it is set: `native_names.internals.sync_debug`."""


def _note_copy(to: int, of: int, x: Any, non_blocking: bool) -> None:
    notify = on_blocking_copy  # another thread may reset it
    if notify is not None and (to < 0) != (of < 0) and not non_blocking and x.numel():
        notify()


def copy(target: Any, source: Any, non_blocking: bool = False) -> Any:
    """Implement ``aten::copy_``: at least one side is a simulated GPU."""
    if on_blocking_copy is not None:
        _note_copy(target.get_device(), source.get_device(), target, non_blocking)
    if late_copies.are_late() and _begin_late_copy(target, source, non_blocking):
        return target
    _copy(_as_host(target), _as_host(source))
    return target


def _begin_late_copy(target: Any, source: Any, non_blocking: bool) -> bool:
    """Begin a copy that arrives later, and return True; a copy that blocks waits for the earlier ones."""
    to, of = target.get_device(), source.get_device()
    plain = target.layout is source.layout is torch.strided and not (target.is_nested or source.is_nested)
    if to == of or not plain:
        return False
    if to < 0 or of < 0:
        if not non_blocking:
            late_copies.finish_current(max(to, of))
            return False
        if of < 0 and not (is_pinned(source) and source.is_contiguous() and source.shape == target.shape):
            return False  # PyTorch copies such memory on the host first
    if to < 0:
        late_copies.to_existing_host(target, _as_host(source).to(target.dtype, copy=True), of)
    else:
        require_simulated(to)
        late_copies.to_existing_gpu(target, source if of < 0 else _as_host(source).clone(), of)
    return True


def copy_from(source: Any, target: Any, non_blocking: bool = False) -> Any:
    """Implement ``aten::_copy_from``: at least one side is a simulated GPU."""
    return copy(target, source, non_blocking)


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
    if on_blocking_copy is not None:
        _note_copy(_index_of_target(x, device), x.get_device(), x, non_blocking)
    if late_copies.are_late() and x.layout is torch.strided and not x.is_nested:
        late = _copy_late(x, dtype, device, memory_format, non_blocking)
        if late is not None:
            return late
    host = _as_host(x)
    keep = torch.preserve_format if memory_format is None else memory_format
    copied = _to(host, device=_CPU, dtype=dtype or x.dtype, copy=True, memory_format=keep)
    if device is None:
        return adopt(copied, x.get_device())
    if device == _CPU:
        return copied
    return adopt(copied, index_of(device)) if device.type in TYPES else _to(copied, device)


def _index_of_target(x: Any, device: Any) -> int:
    """Return the index of the GPU to which a tensor is copied, or -1 for the host."""
    if device is None:
        return int(x.get_device())
    return -1 if device == _CPU else index_of(device) if device.type in TYPES else int(x.get_device())


def _copy_late(x: Any, dtype: Any, device: Any, memory_format: Any, non_blocking: bool) -> Any:
    """Return a tensor that gets its values later, or None if the copy is complete when it returns."""
    of, to = x.get_device(), _index_of_target(x, device)
    if to == of:
        return None
    keep = torch.preserve_format if memory_format is None else memory_format
    if of >= 0 and (to >= 0 or non_blocking):
        copied = _to(_as_host(x), device=_CPU, dtype=dtype or x.dtype, copy=True, memory_format=keep)
        return late_copies.to_new_host(copied, of) if to < 0 else late_copies.to_new_gpu(copied, to, of)
    if not non_blocking:
        late_copies.finish_current(max(to, of))
    elif is_pinned(x) and x.is_contiguous() and keep in (torch.preserve_format, torch.contiguous_format):
        return late_copies.to_new_gpu(x, to, of, dtype)
    return None


def _as_host(tensor: Any) -> Any:
    """Return a tensor as a host tensor, including its conjugation or negation, which DLPack cannot express."""
    index = tensor.get_device()
    if index < 0:
        return tensor
    require_simulated(index)
    return to_host_keeping_bits(tensor)


def copy_from_and_resize(source: Any, target: Any) -> Any:
    """Implement ``aten::_copy_from_and_resize``."""
    aten.resize_.default(target, source.shape)
    return copy_from(source, target)


def read_scalar(tensor: Any) -> Any:
    """Implement ``aten::_local_scalar_dense``, which is ``x.item()``."""
    return read(tensor)


def read(tensor: Any) -> Any:
    """Return a GPU's number; this function is patched while a guard is open."""
    require_simulated(tensor.get_device())
    if late_copies.PENDING:
        late_copies.finish_current(tensor.get_device())
    return _scalar(to_host(tensor))


def native_dropout(x: Any, p: float, train: bool | None) -> tuple[Any, Any]:
    """Implement ``aten::native_dropout``, which accelerators use, with the same bits as the CPU's ``dropout``."""
    gpu = require_simulated(x.get_device())
    host = to_host(x)
    if train is False or not host.numel():
        return adopt(host.clone(), gpu), adopt(torch.ones_like(host, dtype=torch.bool), gpu)
    noise = torch.empty_like(host).bernoulli_(1 - p, generator=DEFAULTS[gpu].host)
    mask = _to(noise, torch.bool)
    if p < 1:
        noise.div_(1 - p)
    return adopt(torch.mul(host, noise), gpu), adopt(mask, gpu)


def native_dropout_backward(grad: Any, mask: Any, scale: float) -> Any:
    """Implement ``aten::native_dropout_backward``: multiply by the same factors as the forward pass."""
    gpu = require_simulated(grad.get_device())
    if not grad.is_floating_point():
        return adopt(aten.native_dropout_backward.default(to_host(grad), to_host(mask), scale), gpu)
    noise = _to(to_host(mask), grad.dtype)
    noise = noise.div_(1 / scale) if scale else noise.zero_()
    return adopt(torch.mul(to_host(grad), noise), gpu)


def is_set_to(x: Any, other: Any) -> Any:
    """Implement ``aten::is_set_to``: it compares storages, and relabelling would turn one into two."""
    if x.get_device() != other.get_device():
        return False
    require_simulated(x.get_device())
    return aten.is_set_to.default._op_dk(torch._C.DispatchKey.CPU, x, other)


def addbmm(x: Any, batch1: Any, batch2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """Implement ``aten::addbmm_``: the CPU's uses the target through two tensors, which relabelling would separate."""
    return x.copy_(aten.addbmm.default(x, batch1, batch2, beta=beta, alpha=alpha))


def copy_quantized(target: Any, source: Any, non_blocking: bool = False) -> Any:
    """Implement ``aten::copy_`` with a quantized tensor: the target gets the quantizer of the source, too."""
    if target.get_device() < 0 or not (target.is_quantized and source.is_quantized):
        return copy(target, source, non_blocking)
    host = _as_host(target)
    copy(host, source, non_blocking)
    set_data(target, quantized.move_bytes(host, lambda _: quantized.bytes_of(target)))
    return target


def empty_per_channel(size: Any, *, device: Any = None, **options: Any) -> Any:
    """Implement ``aten::_empty_per_channel_affine_quantized``."""
    return adopt(quantized.empty_per_channel(size, **options), index_of(device))


KERNELS: Mapping[str, Callable[..., Any]] = {
    **STORAGE_KERNELS,
    **CELL_KERNELS,
    **ATTENTION_KERNELS,
    **FLASH_ATTENTION_KERNELS,
    **EFFICIENT_ATTENTION_KERNELS,
    **SYNC_BATCH_NORM_KERNELS,
    **PRODUCT_KERNELS,
    **CUDNN_KERNELS,
    **SEMI_STRUCTURED_KERNELS,
    **INT4_KERNELS,
    "empty.memory_format": empty,
    "empty_strided": empty_strided,
    "_efficientzerotensor": zeros,
    "zeros": zeros,
    "ones": _factory(torch.ones),
    "full": _factory(torch.full),
    "scalar_tensor": _factory(torch.scalar_tensor),
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
    "_nested_view_from_buffer_copy": nested.copy_over_buffer,
    "_fused_sdp_choice": lambda *args, **kwargs: 0,  # no CUDA kernel is chosen: see `attention`
}
"""Operator -> its kernel at PrivateUse1."""
