"""Storages, which `torch.save`, `torch.load` and legacy programs use, with the card's name for a simulated GPU."""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from devshim.errors import UnsupportedError
from devshim.simulation.patching import Patches
from devshim_backends._torch.simulation.internals.state import NAME
from devshim_backends._torch.simulation.native_names.names import SHOWN, to_simulated

Storage = torch.UntypedStorage
_device = torch._C.StorageBase.device.__get__
_new = torch._C.StorageBase.__new__
_resize = torch._C.StorageBase.resize_


def device(self: Any) -> Any:
    """Replace `torch.UntypedStorage.device`."""
    found = _device(self)
    return SHOWN.get(found, found)


def cuda(self: Any, device: Any = None, non_blocking: bool = False) -> Any:
    """Replace `torch.UntypedStorage.cuda`, which does not count card 0 as a card of its own."""
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
    msg = "a simulated GPU's tensor cannot be shared with another process"
    raise UnsupportedError(msg, 'send a copy, and move it back there: queue.put(x.cpu()); queue.get().to("cuda:0")')


def resize(self: Any, nbytes: int) -> Any:
    """Replace `torch.UntypedStorage.resize_`, by which FSDP frees its parameters and allocates them again."""
    if _device(self).type != NAME:
        return _resize(self, nbytes)
    msg = "a simulated GPU's memory cannot be freed or enlarged in place, as torch.distributed.fsdp does"
    raise UnsupportedError(msg, "train with DistributedDataParallel, or make another tensor of the new size")


def install(patches: Patches) -> None:
    """Install the replacements."""
    patches.replace(Storage, "device", property(device))
    patches.replace(Storage, "cuda", cuda)
    patches.replace(Storage, "to", to)
    patches.replace(Storage, "resize_", resize)
    patches.replace(Storage, "_share_cuda_", _refuse_sharing)
