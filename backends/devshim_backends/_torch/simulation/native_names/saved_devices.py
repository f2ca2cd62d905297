"""Storages, which `torch.save`, `torch.load` and legacy programs use, with the card's name for a simulated GPU."""

from __future__ import annotations

import ctypes
from typing import Any, NoReturn

import torch

from devshim.errors import UnsupportedError
from devshim.simulation.memory import ROUND
from devshim.simulation.patching import Patches
from devshim_backends._torch.simulation.internals.sent_tensors import sharing_error
from devshim_backends._torch.simulation.internals.state import NAME
from devshim_backends._torch.simulation.memory import SIMULATED
from devshim_backends._torch.simulation.native_names.names import SHOWN, to_simulated

Storage = torch.UntypedStorage
_device = torch._C.StorageBase.device.__get__
_new = torch._C.StorageBase.__new__
_resize, _nbytes = torch._C.StorageBase.resize_, torch._C.StorageBase.nbytes
_FREED = "_devshim_freed"
"""An attribute of a storage whose memory the program has freed; PyTorch keeps this object as long as the storage."""


class _Owner:
    """An object that owns bytes, which count as long as it lives."""


def device(self: Any) -> Any:
    """Replace `torch.UntypedStorage.device`."""
    found = _device(self)
    return SHOWN.get(found, found)


def cuda(self: Any, device: Any = None, non_blocking: bool = False) -> Any:
    """Replace `torch.UntypedStorage.cuda`, which does not count card 0 as a separate card."""
    named = torch.device("cuda", device) if isinstance(device, int) else torch.device(device or "cuda")
    return self.to(device=to_simulated(named), non_blocking=non_blocking)


def to(self: Any, *, device: Any, non_blocking: bool = False) -> Any:
    """Replace `torch.UntypedStorage.to`."""
    target = to_simulated(torch.device(device))
    if _device(self) == target:
        return self
    return Storage(self.nbytes(), device=target).copy_(self, non_blocking)


def _refuse_sharing(self: Any, *args: Any) -> NoReturn:
    """Replace the function that shares a card's memory with other processes."""
    raise sharing_error(device(self))


def nbytes(self: Any) -> Any:
    """Replace `torch.UntypedStorage.nbytes` and ``size``: 0 for memory that the program has freed.

    The number may be symbolic: the compiler asks this of tensors whose shapes it does not fix.
    """
    return 0 if _FREED in self.__dict__ else _nbytes(self)


def _get_length(self: Any) -> int:
    """Replace ``len(storage)``, which Python requires to be an ``int``."""
    return int(nbytes(self))


def resize(self: Any, size: int) -> Any:
    """Replace `torch.UntypedStorage.resize_`, which FSDP calls to free its parameters and to allocate them again.

    Freed memory no longer counts, and reads as ones in every bit, that is, as NaN: on a real GPU, it has other values.
    It exists until the storage ends, because tensors may refer to it.
    """
    if _device(self).type != NAME:
        return _resize(self, size)
    if size not in (0, _nbytes(self)):
        msg = "a simulated GPU's memory can be freed in place and allocated again with the same size, not resized"
        raise UnsupportedError(msg, "make another tensor of the new size")
    if size == nbytes(self):
        return self
    gpu, owner, counted = SIMULATED[_device(self).index], _Owner(), -(-_nbytes(self) // ROUND) * ROUND
    if size:
        gpu.track(owner, counted)  # raises if the GPU is full
        ending = [self.__dict__.pop(_FREED), owner]
        del owner
        ending.clear()  # both end in one call of C, so that no thread sees the bytes counted twice
    else:
        ctypes.memset(self.data_ptr(), 0xFF, _nbytes(self))
        gpu.track(owner, -counted, exists=True)
        self.__dict__[_FREED] = owner
    return self


def install(patches: Patches) -> None:
    """Install the replacements."""
    patches.replace(Storage, "device", property(device))
    patches.replace(Storage, "cuda", cuda)
    patches.replace(Storage, "to", to)
    patches.replace(Storage, "resize_", resize)
    patches.replace(Storage, "nbytes", nbytes)
    patches.replace(Storage, "size", nbytes)
    patches.replace(Storage, "__len__", _get_length)
    patches.replace(Storage, "_share_cuda_", _refuse_sharing)
