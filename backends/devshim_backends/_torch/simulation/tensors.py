"""Patches of tensors and storages: features that C++ implements only for the devices it knows."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.jit._builtins import _get_builtin_table
from torch.overrides import has_torch_function_unary
from torch.utils.dlpack import DLDeviceType

from devshim_backends._torch.simulation.internals.generators import Generator
from devshim_backends._torch.simulation.internals.overrides import as_method, as_property, with_handlers
from devshim_backends._torch.simulation.internals.patches import install, install_item
from devshim_backends._torch.simulation.internals.replaced_data import apply, set_data
from devshim_backends._torch.simulation.internals.state import (
    CURRENT,
    NAME,
    TYPES,
    all_hidden,
    current,
    index_of,
    missing_gpu_error,
)
from devshim_backends._torch.simulation.memory import SIMULATED

Tensor, Storage = torch.Tensor, torch.UntypedStorage
_NOT_VALUES = (int, torch.Size, Tensor, Storage, torch.TypedStorage)
"""The arguments that `Tensor.new` does not read as values: a length, a shape, and the memory of the new tensor."""
_real_new_tensor = torch._C.TensorBase.new_tensor
_real_legacy = torch._C.TensorBase.new
_real_set_item = torch._C.TensorBase.__setitem__
_real_get_data = torch._C.TensorBase.data.__get__
_real_dlpack_device = Tensor.__dlpack_device__
_real_clone, _real_new = Storage.clone, Storage.__new__
_real_printed = torch._tensor_str.tensor_totype
_get_device = torch._C.TensorBase.get_device
_CPU = torch.device("cpu")
_NUMBERS = (bool, int, float, complex)


def new_tensor(self: Any, data: Any, **kwargs: Any) -> Any:
    """Replace `torch.Tensor.new_tensor`, which in C++ creates tensors on GPU 0 regardless of the device of ``self``."""
    if kwargs.get("device") is None:
        kwargs["device"] = self.device
    return _real_new_tensor(self, data, **kwargs)


def legacy_new(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Replace `torch.Tensor.new`, which in C++ creates tensors on GPU 0 regardless of the device of ``self``."""
    index = _get_device(self)
    if index <= 0 or kwargs:
        return _real_legacy(self, *args, **kwargs)
    if len(args) == 1 and not isinstance(args[0], _NOT_VALUES):
        return new_tensor(self, args[0], dtype=self.dtype)
    before, CURRENT.index = current(), index
    try:
        return _real_legacy(self, *args)
    finally:
        CURRENT.index = before


def set_item(self: Any, key: Any, value: Any) -> None:
    """Replace `torch.Tensor.__setitem__`: C++ leaves a number on the host only if the tensor is on the CPU or on CUDA.

    For every other device it makes a tensor on it, reshapes it and expands it.
    """
    if isinstance(value, _NUMBERS) and not has_torch_function_unary(self) and _get_device(self) >= 0:
        value = torch.scalar_tensor(value, dtype=self.dtype, device=_CPU)
    _real_set_item(self, key, value)


def dlpack_device(self: Any) -> tuple[Any, int]:
    """Replace `torch.Tensor.__dlpack_device__`, which finds a custom device by a name that the device cannot have."""
    index = _get_device(self)
    return _real_dlpack_device(self) if index < 0 else (DLDeviceType.kDLExtDev, index)


# ---------------------------------------------------------------------- storages
def clone(self: Any) -> Any:
    """Replace `UntypedStorage.clone`, which `copy.deepcopy` calls: C++ has no allocator for the device."""
    if self.device.type not in TYPES:
        return _real_clone(self)
    return _empty_bytes(self.nbytes(), self.device).untyped_storage().copy_(self)


def new(cls: Any, *args: Any, **kwargs: Any) -> Any:
    """Replace `UntypedStorage(...)`: C++ would use an allocator that does not exist."""
    device = kwargs.get("device")
    if device is None or torch.device(device).type not in TYPES:
        return _real_new(cls, *args, **kwargs)
    content = args[0] if args else kwargs.get("size", 0)
    tensor = _empty_bytes(content if isinstance(content, int) else len(content), torch.device(NAME, index_of(device)))
    if not isinstance(content, int):
        tensor.copy_(torch.tensor(list(content), dtype=torch.uint8, device="cpu"))
    return tensor.untyped_storage()


def _empty_bytes(count: int, device: Any) -> Any:
    return torch.empty((count,), dtype=torch.uint8, device=device)


# ---------------------------------------------------------------------- pinned memory
_PINNED: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""Address -> a storage that counts as pinned; for a simulated GPU, any host memory works like pinned memory."""


def pin_memory(self: Any, device: Any = None) -> Any:
    """Replace `torch.Tensor.pin_memory`: C++ asks the device for an allocator of pinned memory."""
    if _get_device(self) >= 0:
        msg = f"cannot pin '{self.type()}' only dense CPU tensors can be pinned"
        raise RuntimeError(msg)
    if all_hidden():  # CUDA allocates pinned memory
        raise missing_gpu_error(0)
    if is_pinned(self):
        return self
    tensor = self.clone()
    mark_pinned(tensor)
    return tensor


def mark_pinned(tensor: Any) -> None:
    """Record that the memory of a host tensor counts as pinned."""
    storage = tensor.untyped_storage()
    _PINNED[storage.data_ptr()] = storage


def is_pinned(self: Any, device: Any = None) -> bool:
    """Replace `torch.Tensor.is_pinned`."""
    return bool(self.device.type == "cpu" and self.untyped_storage().data_ptr() in _PINNED)


def convert_for_printing(self: Any) -> Any:
    """Replace ``torch._tensor_str.tensor_totype``, which prints in float64 except on the GPUs of Apple and Intel."""
    lacks_double = self.device.type in TYPES and "float64" in SIMULATED.dtypes_lacking
    return self.float() if lacks_double else _real_printed(self)


def patch_permanently() -> None:
    """Install a permanent patch: without it, a request for a storage on a removed GPU crashes."""
    Storage.__new__ = staticmethod(new)


def patch() -> None:
    """Install all patches of this module except the permanent one."""
    install(torch, "Generator", Generator)  # C++ would ask the device to make one
    install_item(_get_builtin_table(), id(Generator), "aten::Generator")  # the class that TorchScript knows
    install(torch.nn.Module, "_apply", apply)
    for method in (new_tensor, dlpack_device, pin_memory, is_pinned):
        name = method.__name__ if method is not dlpack_device else "__dlpack_device__"
        install(Tensor, name, as_method(with_handlers(method, name, Tensor), getattr(Tensor, name)))
    install(Tensor, "new", as_method(with_handlers(legacy_new, "new", Tensor), Tensor.new))
    install(Tensor, "__setitem__", as_method(set_item, Tensor.__setitem__))
    install(Tensor, "data", as_property(_real_get_data, Tensor.data, set_data))
    install(Storage, "clone", clone)
    install(torch._tensor_str, "tensor_totype", convert_for_printing)
