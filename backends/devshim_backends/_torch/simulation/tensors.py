"""Patches of tensors and storages: features that C++ implements only for the devices it knows."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torch.utils.dlpack import DLDeviceType

from devshim_backends._torch.simulation.internals.generators import Generator
from devshim_backends._torch.simulation.internals.patches import install
from devshim_backends._torch.simulation.internals.state import CURRENT, NAME, TYPES, index_of
from devshim_backends._torch.simulation.memory import SIMULATED

Tensor, Storage = torch.Tensor, torch.UntypedStorage
_real_new_tensor = torch._C.TensorBase.new_tensor
_real_legacy = torch._C.TensorBase.new
_real_set_item = torch._C.TensorBase.__setitem__
_real_data = torch._C.TensorBase.data
_real_dlpack_device = Tensor.__dlpack_device__
_real_clone, _real_new = Storage.clone, Storage.__new__
_real_apply = torch.nn.Module._apply
_real_printed = torch._tensor_str.tensor_totype
_get_device = torch._C.TensorBase.get_device
_CPU = torch.device("cpu")


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
    if len(args) == 1 and not isinstance(args[0], (int, torch.Size, Tensor, Storage)):
        return new_tensor(self, args[0], dtype=self.dtype)
    before, CURRENT.index = CURRENT.index, index
    try:
        return _real_legacy(self, *args)
    finally:
        CURRENT.index = before


def set_item(self: Any, key: Any, value: Any) -> None:
    """Replace `torch.Tensor.__setitem__`: C++ leaves a number on the host only if the tensor is on the CPU or on CUDA.

    For every other device it makes a tensor on it, reshapes it and expands it.
    """
    if isinstance(value, (bool, int, float, complex)) and _get_device(self) >= 0:
        value = torch.scalar_tensor(value, dtype=self.dtype, device=_CPU)
    _real_set_item(self, key, value)


def dlpack_device(self: Any) -> tuple[Any, int]:
    """Replace `torch.Tensor.__dlpack_device__`, which finds a custom device by a name that the device cannot have."""
    index = _get_device(self)
    return _real_dlpack_device(self) if index < 0 else (DLDeviceType.kDLExtDev, index)


# ---------------------------------------------------------------------- x.data = y, and with it Module.to
def _changes_kind(tensor: Any, other: Any) -> bool:
    """Return True if one of two plain tensors is on a simulated GPU and the other on the host."""
    return bool((_get_device(tensor) >= 0) != (_get_device(other) >= 0))


def _set_data(self: Any, value: Any) -> None:
    """Set ``x.data = y`` between host and GPU: the object stays, with its gradient and hooks, and moves."""
    if not _changes_kind(self, value):
        _real_data.__set__(self, value)
        return
    gradient = self.grad if self.is_leaf else None
    moved = value.detach().requires_grad_(self.requires_grad)
    if gradient is not None and gradient.shape != moved.shape:  # FSDP's is that of a shard
        moved = _with_other_gradient(moved, gradient.to(moved.device, moved.dtype))
        gradient = None
    hooks, after = self._backward_hooks, self._post_accumulate_grad_hooks
    torch._C._swap_tensor_impl(self, moved)
    if gradient is not None:
        self.grad = gradient.to(self.device, self.dtype)
    if hooks:
        self._backward_hooks = hooks
    if after:
        self._post_accumulate_grad_hooks = after


def _with_other_gradient(tensor: Any, gradient: Any) -> Any:
    """Return a tensor with a gradient of another shape, which PyTorch accepts only before ``.data`` is set."""
    holder = torch.empty_like(gradient, requires_grad=True)
    holder.grad = gradient
    _real_data.__set__(holder, tensor)
    return holder.requires_grad_(tensor.requires_grad)


def apply(self: Any, fn: Any, recurse: bool = True) -> Any:
    """Replace `Module._apply`, on which `Module.to` and similar methods are built.

    PyTorch would create new parameters for those that move between host and GPU. Therefore this function moves them
    first. What PyTorch then does with them (gradients, buffers, settings in ``torch.__future__``) is unchanged.
    """
    if isinstance(self, torch.jit.ScriptModule):
        return _apply_to_script(self, fn, recurse)

    def move_parameter(tensor: Any) -> Any:
        moved = fn(tensor)
        if is_traceable_wrapper_subclass(moved):
            return moved  # PyTorch swaps such tensors itself, so the parameter stays the same object
        if isinstance(tensor, torch.nn.Parameter) and _changes_kind(tensor, moved):
            _set_data(tensor, moved)
            return tensor.data
        return moved

    move_parameter.moves_parameters = True  # type: ignore[attr-defined]
    return _real_apply(self, fn if hasattr(fn, "moves_parameters") else move_parameter, recurse)


def _apply_to_script(self: Any, fn: Any, recurse: bool) -> Any:
    """Apply a function to a scripted module: its C++ side does not see that a parameter's object has changed."""
    for child in self.children() if recurse else ():
        child._apply(fn)
    with torch.no_grad():
        for name, parameter in list(self._parameters.items()):
            if parameter is not None:
                moved = torch.nn.Parameter(fn(parameter.data), parameter.requires_grad)
                moved.grad = None if parameter.grad is None else fn(parameter.grad)
                self._parameters[name] = moved
        for name, buffer in list(self._buffers.items()):
            if buffer is not None:
                self._buffers[name] = fn(buffer)
    return self


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
    install(torch.nn.Module, "_apply", apply)
    install(Tensor, "new_tensor", new_tensor)
    install(Tensor, "__setitem__", set_item)
    install(Tensor, "new", legacy_new)
    install(Tensor, "__dlpack_device__", dlpack_device)
    install(Tensor, "data", property(_real_data.__get__, _set_data))
    install(Tensor, "pin_memory", pin_memory)
    install(Tensor, "is_pinned", is_pinned)
    install(Storage, "clone", clone)
    install(torch._tensor_str, "tensor_totype", convert_for_printing)
