"""Operators on a tensor's storage: resizing it, and replacing it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import torch

from devshim_backends._torch.simulation.internals.relabel import to_host
from devshim_backends._torch.simulation.internals.state import require_simulated
from devshim_backends._torch.simulation.memory import adopt

aten = torch.ops.aten
_CPU = torch.device("cpu")
_META = torch.device("meta")
_set = aten.set_.source_Storage_storage_offset._op_dk
_KEY = torch._C.DispatchKey.CPU


def _strides(size: Any, memory_format: Any = None) -> Any:
    """Return the strides that PyTorch gives a new tensor of a size."""
    return aten.empty.memory_format(size, device=_META, memory_format=memory_format).stride()


def set_storage(tensor: Any, storage: Any, offset: int, size: Any, stride: Any = ()) -> Any:
    """Implement ``aten::set_.source_Storage_storage_offset``.

    Raises:
        RuntimeError: The tensor and the storage are on different devices.
    """
    if tensor.device != storage.device:
        msg = (
            f'Attempted to set the storage of a tensor on device "{tensor.device}" to a storage on different device '
            f'"{storage.device}".  This is no longer allowed; the devices must match.'
        )
        raise RuntimeError(msg)
    require_simulated(tensor.get_device())
    return _set(_KEY, tensor, storage, offset, size, stride or _strides(size))


def resize(tensor: Any, size: Any, *, memory_format: Any = None) -> Any:
    """Implement ``aten::resize_``: in the existing memory, or in new memory that begins with the old values."""
    gpu = require_simulated(tensor.get_device())
    storage, offset, width = tensor.untyped_storage(), tensor.storage_offset(), tensor.element_size()
    needed = offset + prod(size)
    if prod(size) and needed * width > storage.nbytes():
        larger = adopt(aten.empty.memory_format((needed,), dtype=tensor.dtype, device=_CPU), gpu)
        old_count = storage.nbytes() // width
        if old_count:
            flat = aten.alias.default(tensor)
            old = to_host(_set(_KEY, flat.detach(), storage, 0, (old_count,), (1,)))
            aten.copy_.default(aten.slice.Tensor(to_host(larger), 0, 0, old_count), old)
        storage = larger.untyped_storage()
    return _set(_KEY, tensor, storage, offset, size, _strides(size, memory_format))


def set_tensor(tensor: Any, source: Any) -> Any:
    """Implement ``aten::set_.source_Tensor``."""
    return set_storage(tensor, source.untyped_storage(), source.storage_offset(), source.size(), source.stride())


def set_full_storage(tensor: Any, storage: Any) -> Any:
    """Implement ``aten::set_.source_Storage``."""
    return set_storage(tensor, storage, 0, (storage.nbytes() // tensor.element_size(),), (1,))


def set_nothing(tensor: Any) -> Any:
    """Implement ``aten::set_``."""
    empty = aten.empty.memory_format((0,), dtype=tensor.dtype, device=_CPU)
    return set_tensor(tensor, adopt(empty, require_simulated(tensor.get_device())))


STORAGE_KERNELS: Mapping[str, Callable[..., Any]] = {
    "resize_": resize,
    "set_.source_Storage_storage_offset": set_storage,
    "set_.source_Tensor": set_tensor,
    "set_.source_Storage": set_full_storage,
    "set_": set_nothing,
}
"""Operator -> its kernel at PrivateUse1."""
