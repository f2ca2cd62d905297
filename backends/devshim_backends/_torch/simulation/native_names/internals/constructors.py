"""Functions that create tensors and ask C++ for a card before the dispatcher, and the default device.

`torch.zeros` and most others are translated at the dispatcher (`operators`). These functions are not: they compare the
device with that of their data, or ask a device guard for the current card.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import has_torch_function
from torch.utils._device import DeviceContext, _device_constructors

from devshim.simulation.patching import Patches
from devshim_backends._torch.simulation.internals import slots
from devshim_backends._torch.simulation.internals.overrides import Override, as_method
from devshim_backends._torch.simulation.native_names.names import to_simulated, with_index
from devshim_backends._torch.tracing import compiles_here

_NAMES = (
    *("tensor", "as_tensor", "asarray", "sparse_coo_tensor", "sparse_compressed_tensor"),
    *("sparse_csr_tensor", "sparse_csc_tensor", "sparse_bsr_tensor", "sparse_bsc_tensor", "range"),
    *("_empty_affine_quantized", "_empty_per_channel_affine_quantized"),
)
"""Functions that ask C++ for the device before the dispatcher."""

_NESTED = ("nested_tensor", "as_nested_tensor")
"""Functions of `torch.nested`, which ask C++ for the device."""

_WITH_OUT = (
    *("arange", "empty", "eye", "full", "linspace", "logspace", "normal", "ones", "rand", "randint", "randn"),
    *("randperm", "zeros"),
)
"""Functions that compare the device with that of ``out=`` before the dispatcher."""

_PINNING = (
    *("empty", "zeros", "ones", "full", "rand", "randn", "randint", "randperm", "arange", "linspace", "eye"),
    *("empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like"),
    *("empty_strided", "empty_permuted", "logspace", "normal", "scalar_tensor", "tril_indices", "triu_indices"),
    *("bartlett_window", "blackman_window", "hamming_window", "hann_window", "kaiser_window"),
)
"""Functions with ``pin_memory=``: PyTorch's C++ would ask the simulated GPUs for an allocator of pinned memory."""

_PINNING_METHODS = ("new_empty", "new_empty_strided", "new_full", "new_ones", "new_zeros")
"""Methods of tensors with ``pin_memory=``."""

_PYTHON = ("from_dlpack",)
"""Functions that ask C++ for the device before the dispatcher, and are written in Python."""


def _create(names: frozenset[str], translates: bool) -> Callable[[Any], Callable[..., Any]]:
    """Return a function that makes the replacement of a function in C.

    Args:
        names: The keywords that the replacement reads; a call without them is passed on.
        translates: True if the function asks for the device in every call, False if only in one with ``out=``.
    """

    def wrap(real: Callable[..., Any]) -> Callable[..., Any]:
        def create(*args: Any, **kwargs: Any) -> Any:
            if kwargs and not names.isdisjoint(kwargs) and not compiles_here() and not _is_overridden(args, kwargs):
                if (translates or "out" in kwargs) and kwargs.get("device") is not None:
                    kwargs["device"] = to_simulated(kwargs["device"])
                if kwargs.get("pin_memory"):
                    return _pin(real, args, kwargs)
            return real(*args, **kwargs)

        return create

    return wrap


def _is_overridden(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return True if a mode or an argument has a ``__torch_function__``: it gets the arguments of the program."""
    return bool(has_torch_function((*args, *kwargs.values())))


def _pin(real: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Create a tensor and pin it, as `torch.Tensor.pin_memory` does."""
    made = real(*args, **{**kwargs, "pin_memory": False})
    if kwargs.get("out") is not None:
        msg = "Only dense CPU tensors can be pinned, and out= is a tensor that exists"
        raise RuntimeError(msg)
    needs_grad = made.requires_grad
    return made.detach().pin_memory().requires_grad_(needs_grad) if needs_grad else made.pin_memory()


def _translate_device(real: Callable[..., Any]) -> Callable[..., Any]:
    """Return a wrapper that translates the keyword ``device`` of a function written in Python."""

    @functools.wraps(real)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("device") is not None and not compiles_here():
            kwargs["device"] = to_simulated(kwargs["device"])
        return real(*args, **kwargs)

    return wrapper


_make_wrapper = torch.Tensor._make_wrapper_subclass
_DEVICE = 6
"""The position of its argument ``device`` after the class."""


def _make_wrapper_subclass(cls: type, *args: Any, **kwargs: Any) -> Any:
    """Replace `torch.Tensor._make_wrapper_subclass`: autograd would crash for a device that C++ lacks."""
    if len(args) > _DEVICE:
        args = (*args[:_DEVICE], _simulated_or_none(args[_DEVICE]), *args[_DEVICE + 1 :])
    elif "device" in kwargs:
        kwargs["device"] = _simulated_or_none(kwargs["device"])
    return _make_wrapper(cls, *args, **kwargs)


def _simulated_or_none(device: Any) -> Any:
    return None if device is None else to_simulated(device)


def _create_on_default(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """Replace the default device's method: ``cuda`` is the card that is current at the call."""
    kwargs = kwargs or {}
    if func in _device_constructors() and kwargs.get("device") is None:
        kwargs["device"] = self.device if compiles_here() else with_index(self.device)
    return func(*args, **kwargs)


def install(patches: Patches) -> None:
    """Install the replacements."""
    for name in dict.fromkeys((*_NAMES, *_WITH_OUT, *_PINNING)):
        keyword = "device" if name in _NAMES else "out"
        wrap = _create(frozenset((keyword, "pin_memory")), name in _NAMES)
        real = getattr(torch, name)
        made = Override(wrap(real), real)
        patches.replace(torch, name, made)
        slots.replace_attribute(patches, torch._C._VariableFunctionsClass, name, staticmethod(made))
    for name in _PINNING_METHODS:
        real = getattr(torch.Tensor, name)
        patches.replace(torch.Tensor, name, as_method(_create(frozenset(("pin_memory",)), False)(real), real))
    for name in _PYTHON:
        patches.replace(torch, name, _translate_device(getattr(torch, name)))
    patches.replace(torch.Tensor, "_make_wrapper_subclass", staticmethod(_make_wrapper_subclass))
    for name in _NESTED:
        patches.replace(torch.nested, name, _translate_device(getattr(torch.nested, name)))
    patches.replace(DeviceContext, "__torch_function__", _create_on_default)


def forget_default_device() -> None:
    """Take back a default device of this thread that PyTorch does not have without native names."""
    context = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    if context is not None and context.device.type == "cuda":
        torch.set_default_device(None)
