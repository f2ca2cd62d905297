"""The legacy types of a card's tensors: ``torch.cuda.FloatTensor`` and the others."""

from __future__ import annotations

from typing import Any

import torch

from devshim.simulation.patching import Patches
from devshim_backends._torch.simulation.internals import slots

_DTYPES = {
    "FloatTensor": torch.float32,
    "DoubleTensor": torch.float64,
    "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16,
    "ByteTensor": torch.uint8,
    "CharTensor": torch.int8,
    "ShortTensor": torch.int16,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
    "BoolTensor": torch.bool,
}
"""Name of a type -> the dtype of its tensors."""


class _CudaTensorType(type):
    """The class of a legacy type: its instances are a card's tensors of one dtype."""

    dtype: Any

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, torch.Tensor) and instance.is_cuda and instance.dtype is cls.dtype

    def __call__(cls, *args: Any, device: Any = "cuda") -> Any:
        if not args:
            return torch.empty(0, dtype=cls.dtype, device=device)
        if len(args) == 1 and not isinstance(args[0], (int, torch.Size)):
            return torch.tensor(args[0], dtype=cls.dtype, device=device)
        return torch.empty(*args, dtype=cls.dtype, device=device)


_TYPES = {
    name: _CudaTensorType(name, (), {"dtype": dtype, "__module__": "torch.cuda", "is_cuda": True})
    for name, dtype in _DTYPES.items()
}


def named_type(dtype: Any) -> Any:
    """Return the dtype of a card's legacy type, given as a class or as text; None for anything else."""
    if isinstance(dtype, str):
        module, _, name = dtype.rpartition(".")
        return _DTYPES.get(name) if module == "torch.cuda" else None
    return getattr(dtype, "dtype", None) if isinstance(dtype, _CudaTensorType) else None


def _default_context() -> Any:
    """Return this thread's context of the default device, or None."""
    return getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)


_SHARED = torch.Tensor, torch.UntypedStorage, torch.TypedStorage
"""The arguments of which `torch.Tensor` makes a tensor without a copy."""


class _Default:
    """The default type of tensors: the context of the default device that it has set, and how `torch.Tensor` is made.

    PyTorch's context of a default device does not change ``torch.Tensor(2, 3)``, but a default type does.
    """

    context: Any = None
    patches = Patches()

    @classmethod
    def begin(cls, dtype: Any) -> None:
        """Create tensors of a dtype on the current card."""
        cls.end()
        torch.set_default_dtype(dtype)
        torch.set_default_device("cuda")
        cls.context = _default_context()
        slots.replace(cls.patches, torch.Tensor, slots.NEW, _create)

    @classmethod
    def end(cls) -> None:
        """Create tensors on the host again, unless the program has set another default device."""
        if cls.context is not None and cls.context is _default_context():
            torch.set_default_device(None)
        cls.context = None
        cls.patches.undo()


def _create(cls: type, *args: Any, **kwargs: Any) -> Any:
    """Replace the constructor of `torch.Tensor` while a card's type is the default."""
    made = torch._C.TensorBase.__new__(cls, *args, **kwargs)
    named = "device" in kwargs or (args and isinstance(args[0], _SHARED))
    if named or cls is not torch.Tensor or _Default.context is not _default_context():
        return made
    return made.to("cuda")


def _set_default(real: Any) -> Any:
    """Return a replacement for `torch.set_default_tensor_type`."""

    def set_default_tensor_type(t: Any, /) -> None:
        dtype = named_type(t)
        if dtype is None:
            real(t)
            _Default.end()
            return
        if not dtype.is_floating_point:
            msg = "only floating-point types are supported as the default type"
            raise TypeError(msg)
        real("torch.FloatTensor")  # PyTorch's warning
        _Default.begin(dtype)

    return set_default_tensor_type


def forget_default() -> None:
    """Take back a default type that PyTorch does not have without native names."""
    _Default.end()


def install(patches: Patches) -> None:
    """Install the replacements."""
    for name, each in _TYPES.items():
        if hasattr(torch.cuda, name):
            patches.replace(torch.cuda, name, each)
    patches.replace(torch, "set_default_tensor_type", _set_default(torch.set_default_tensor_type))
