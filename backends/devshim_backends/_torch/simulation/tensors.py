"""Patches of tensors and storages: what C++ does for the devices it knows, and refuses for this one."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils.dlpack import DLDeviceType

from devshim_backends._torch.simulation.generators import Generator
from devshim_backends._torch.simulation.patches import put
from devshim_backends._torch.simulation.state import CURRENT, NAME, index_of

Tensor, Storage = torch.Tensor, torch.UntypedStorage
_real_new_tensor = torch._C.TensorBase.new_tensor
_real_legacy = torch._C.TensorBase.new
_real_data = torch._C.TensorBase.data
_real_dlpack_device = Tensor.__dlpack_device__
_real_clone, _real_new = Storage.clone, Storage.__new__
_real_apply = torch.nn.Module._apply
_get_device = torch._C.TensorBase.get_device


def new_tensor(self: Any, data: Any, **kwargs: Any) -> Any:
    """`torch.Tensor.new_tensor`, which in C++ lands on card 0 whichever ``self`` is on."""
    if kwargs.get("device") is None:
        kwargs["device"] = self.device
    return _real_new_tensor(self, data, **kwargs)


def legacy_new(self: Any, *args: Any, **kwargs: Any) -> Any:
    """`torch.Tensor.new`, which in C++ lands on card 0 whichever ``self`` is on."""
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


def dlpack_device(self: Any) -> tuple[Any, int]:
    """`torch.Tensor.__dlpack_device__`, which knows a device of one's own by a name it cannot have."""
    index = _get_device(self)
    return _real_dlpack_device(self) if index < 0 else (DLDeviceType.kDLExtDev, index)


# ---------------------------------------------------------------------- x.data = y, and with it Module.to
def _changes_kind(tensor: Any, other: Any) -> bool:
    """Whether one of two plain tensors is on a card and the other on the host."""
    return bool((_get_device(tensor) >= 0) != (_get_device(other) >= 0))


def _set_data(self: Any, value: Any) -> None:
    """``x.data = y`` where one of them is on a card: the object stays, with its gradient and hooks, and moves."""
    if not _changes_kind(self, value):
        _real_data.__set__(self, value)
        return
    gradient = self.grad if self.is_leaf else None
    moved = value.detach().requires_grad_(self.requires_grad)
    hooks, after = self._backward_hooks, self._post_accumulate_grad_hooks
    torch._C._swap_tensor_impl(self, moved)
    if gradient is not None:
        self.grad = gradient.to(self.device, self.dtype)
    if hooks:
        self._backward_hooks = hooks
    if after:
        self._post_accumulate_grad_hooks = after


def apply(self: Any, fn: Any, recurse: bool = True) -> Any:
    """`Module._apply`, under `Module.to` and its like.

    PyTorch would put new parameters in the place of those that change between host and card.  So these are moved
    before it looks; what it then does with them (gradients, buffers, its settings in ``torch.__future__``) is its own.
    """
    if isinstance(self, torch.jit.ScriptModule):
        return _apply_to_script(self, fn, recurse)

    def moving(tensor: Any) -> Any:
        moved = fn(tensor)
        if isinstance(tensor, torch.nn.Parameter) and _changes_kind(tensor, moved):
            _set_data(tensor, moved)
            return tensor.data
        return moved

    moving.moves = True  # type: ignore[attr-defined]
    return _real_apply(self, fn if hasattr(fn, "moves") else moving, recurse)


def _apply_to_script(self: Any, fn: Any, recurse: bool) -> Any:
    """`apply` to a scripted module: it lives in C++, where an object that changes under its parameter is not seen."""
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
    """`UntypedStorage.clone`, which `copy.deepcopy` calls: C++ has no allocator for the device."""
    if self.device.type != NAME:
        return _real_clone(self)
    return _bytes(self.nbytes(), self.device).untyped_storage().copy_(self)


def new(cls: Any, *args: Any, **kwargs: Any) -> Any:
    """`UntypedStorage(...)`: C++ would use an allocator that is not there."""
    device = kwargs.get("device")
    if device is None or torch.device(device).type != NAME:
        return _real_new(cls, *args, **kwargs)
    content = args[0] if args else kwargs.get("size", 0)
    made = _bytes(content if isinstance(content, int) else len(content), torch.device(NAME, index_of(device)))
    if not isinstance(content, int):
        made.copy_(torch.tensor(list(content), dtype=torch.uint8, device="cpu"))
    return made.untyped_storage()


def _bytes(count: int, device: Any) -> Any:
    return torch.empty((count,), dtype=torch.uint8, device=device)


# ---------------------------------------------------------------------- pinned memory
_PINNED: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""Storages said to be pinned, by address; any memory of the host's is as good for a simulated card."""


def pin_memory(self: Any, device: Any = None) -> Any:
    """`torch.Tensor.pin_memory`: C++ asks the device for an allocator of pinned memory."""
    if _get_device(self) >= 0:
        raise RuntimeError(f"cannot pin '{self.type()}' only dense CPU tensors can be pinned")
    if is_pinned(self):
        return self
    made = self.clone()
    storage = made.untyped_storage()
    _PINNED[storage.data_ptr()] = storage
    return made


def is_pinned(self: Any, device: Any = None) -> bool:
    """`torch.Tensor.is_pinned`."""
    return bool(self.device.type == "cpu" and self.untyped_storage().data_ptr() in _PINNED)


def guard() -> None:
    """Put in place what stays: without it C++ ends the process where a storage is asked for on a card that is gone."""
    Storage.__new__ = staticmethod(new)


def patch() -> None:
    """Put all of these in place."""
    put(torch, "Generator", Generator)  # C++ asks the device to make one
    put(torch.nn.Module, "_apply", apply)
    put(Tensor, "new_tensor", new_tensor)
    put(Tensor, "new", legacy_new)
    put(Tensor, "__dlpack_device__", dlpack_device)
    put(Tensor, "data", property(_real_data.__get__, _set_data))
    put(Tensor, "pin_memory", pin_memory)
    put(Tensor, "is_pinned", is_pinned)
    put(Storage, "clone", clone)
