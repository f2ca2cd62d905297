"""Methods and properties of tensors that compare or print devices before the dispatcher is called.

A tensor's C++ object is on ``sim:1``. Its properties show a card, and its methods translate one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import has_torch_function_unary

from devshim.errors import UnsupportedError
from devshim.simulation.patching import Patches
from devshim_backends._torch.capabilities import INTERFACE, NOT_SIMULATED
from devshim_backends._torch.simulation.internals import slots
from devshim_backends._torch.simulation.internals.overrides import as_method, as_property, with_handlers
from devshim_backends._torch.simulation.internals.state import NAME, index_of
from devshim_backends._torch.simulation.native_names.internals import tensor_types
from devshim_backends._torch.simulation.native_names.names import SHOWN, SIMULATED, to_simulated
from devshim_backends._torch.tracing import compiles_here

Tensor, Base = torch.Tensor, torch._C.TensorBase
_device, _is_cuda, _type, _cpu = Base.device.__get__, Base.is_cuda.__get__, Base.type, Base.cpu
_get_device, _modes = Base.get_device, torch._C._len_torch_dispatch_stack
_interface = Tensor.__cuda_array_interface__.fget


def device(self: Any) -> Any:
    """Replace `torch.Tensor.device`."""
    found = _device(self)
    return SHOWN.get(found, found)


def is_cuda(self: Any) -> bool:
    """Replace `torch.Tensor.is_cuda`."""
    if has_torch_function_unary(self):
        return _is_cuda(self)  # type: ignore[no-any-return]
    return bool(_is_cuda(self)) or _device(self).type == NAME


def cuda(self: Any, device: Any = None, non_blocking: bool = False, memory_format: Any = torch.preserve_format) -> Any:
    """Replace `torch.Tensor.cuda`, which in C++ accepts only CUDA's devices."""
    named = torch.device(device) if isinstance(device, str) else device
    if compiles_here():
        return self.to(torch.device("cuda", named) if isinstance(named, int) else named or "cuda", None, non_blocking)
    if isinstance(named, torch.device) and named.type != "cuda":
        msg = "Invalid device, must be cuda device"
        raise RuntimeError(msg)
    return self.to(SHOWN[SIMULATED[index_of(named)]], non_blocking=non_blocking, memory_format=memory_format)


def type_of(self: Any, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
    """Replace `torch.Tensor.type`, whose names for the types of simulated GPUs are unknown to programs."""
    if dtype is None:
        return _type(self).replace("torch.sim.", "torch.cuda.")
    named = tensor_types.named_type(dtype)
    if named is None:
        return _type(self, dtype, non_blocking, **kwargs)
    return self.to(cuda_device_of(self), named, non_blocking)


def cuda_device_of(tensor: Any) -> Any:
    """Return the simulated GPU of a tensor, or the current one for a tensor elsewhere."""
    index = _get_device(tensor)
    return SIMULATED[index if index >= 0 else index_of(None)]


def _target(tensor: Any, named: Any) -> Any:
    """Return the argument of `torch.Tensor.to` for C++: a mode of the dispatcher sees the card to which it copies."""
    target = to_simulated(named)
    if target is not named and _modes() and _device(tensor) != target:
        return SHOWN.get(target, target)
    return target


def _wrap_to(real: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement for `torch.Tensor.to`, which in C++ would copy: ``cuda:1`` is not ``sim:1``."""

    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        if compiles_here() or has_torch_function_unary(self):
            return real(self, *args, **kwargs)
        if args:
            args = (_target(self, args[0]), *args[1:])
        elif "device" in kwargs:
            kwargs["device"] = _target(self, kwargs["device"])
        return real(self, *args, **kwargs)

    return to


def _numpy(real: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement for `torch.Tensor.numpy`, whose error names the card."""

    def numpy(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return real(self, *args, **kwargs)
        except TypeError as error:
            if has_torch_function_unary(self):
                raise
            text = str(error)
        raise TypeError(text.replace(f"{NAME}:", "cuda:"))

    return numpy


def _refuse_interface(self: Any) -> Any:
    """Replace ``__cuda_array_interface__``: a library that read it would use an address of the host as a card's."""
    if has_torch_function_unary(self) or not is_cuda(self):
        return _interface(self)  # raises PyTorch's error
    why, _, instead = NOT_SIMULATED[INTERFACE].partition(": ")
    raise UnsupportedError(why, instead)


def _with_device(real: Callable[..., Any]) -> Callable[..., Any]:
    """Return a wrapper that translates the keyword ``device``."""

    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("device") is not None and not compiles_here():
            kwargs["device"] = to_simulated(kwargs["device"])
        return real(self, *args, **kwargs)

    return wrapper


def install(patches: Patches) -> None:
    """Install the replacements."""
    real_to = getattr(Tensor, "_devshim_to", Base.to)
    to = _wrap_to(Base.to)
    patches.replace(Tensor, "_devshim_to", real_to)
    patches.replace(Tensor, "to", as_method(to, Tensor.to))
    patches.replace(Tensor, "numpy", as_method(_numpy(Tensor.numpy), Tensor.numpy))
    methods: dict[str, Callable[..., Any]] = {
        "cuda": cuda,
        "type": type_of,
        "new_tensor": _with_device(Tensor.new_tensor),
    }
    for name, method in methods.items():
        made = as_method(with_handlers(method, name, Tensor), getattr(Tensor, name))
        patches.replace(Tensor, name, made)
        if name in vars(Base):  # under this name PyTorch stores a method: without devshim, `pickle` writes it
            slots.replace_attribute(patches, Base, name, made)
    properties = {"device": device, "is_cuda": is_cuda, "__cuda_array_interface__": _refuse_interface}
    for name, get in properties.items():
        patches.replace(Tensor, name, as_property(get, getattr(Tensor, name)))
