"""Tensors that a program sends to another process, in a queue or a pipe.

On real GPUs, both processes use the same memory afterwards. A simulated GPU's memory belongs to one process. Therefore:

* A worker of a `DataLoader` sends copies, through memory of the host. It has no use for a batch that it has sent.
* Otherwise, the receiver might wait for what the sender writes, so the tensor is refused. The thread that writes to a
  `multiprocessing.Queue` has no caller: it would print the error, and the receiver would wait forever. Therefore the
  receiver gets the error, from ``queue.get()``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from multiprocessing.queues import Queue
from multiprocessing.reduction import ForkingPickler
from typing import Any, NoReturn

import torch
from torch.multiprocessing import reductions
from torch.utils.data import get_worker_info

from devshim.errors import DevshimError, UnsupportedError
from devshim_backends._torch.simulation.internals.patches import install, install_item
from devshim_backends._torch.simulation.internals.state import NAME, shown_device

__all__ = ["patch", "sharing_error"]


class _Local(threading.local):
    """True in a thread that writes to a queue, and drops what it cannot write."""

    drops = False


_LOCAL = _Local()


def sharing_error(device: Any) -> UnsupportedError:
    """Return the error for a tensor of a simulated GPU, whose memory other processes would use."""
    msg = "a simulated GPU's tensor cannot be shared with another process"
    return UnsupportedError(msg, f'send a copy, and move it back there: queue.put(x.cpu()); queue.get().to("{device}")')


def _reduce_of(real: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement for ``reduce_tensor``, which takes a tensor apart for another process."""

    def reduce_tensor(tensor: Any) -> Any:
        is_plain = tensor.layout is torch.strided and not tensor.is_nested  # PyTorch sends the parts of others
        if tensor.get_device() < 0 or not is_plain or (tensor.requires_grad and not tensor.is_leaf):
            return real(tensor)
        try:
            if get_worker_info() is None:
                raise sharing_error(shown_device(tensor.get_device()))
            return _reduce_to_copy(tensor)
        except DevshimError as error:
            if not _LOCAL.drops:
                raise
            return _raise, (error,)

    return reduce_tensor


def _reduce_to_copy(tensor: Any) -> Any:
    """Take a tensor apart: its elements on the host, with the gaps between them."""
    plain = tensor.detach().resolve_conj().resolve_neg()
    size, stride = tuple(plain.shape), plain.stride()
    count = 0 if 0 in size else 1 + sum((length - 1) * step for length, step in zip(size, stride, strict=True))
    host = plain.as_strided((count,), (1,)).cpu()
    return _rebuild, (type(tensor), host, tensor.get_device(), size, stride, tensor.requires_grad)


def _rebuild(cls: Any, host: Any, gpu: int, size: Any, stride: Any, requires_grad: bool) -> Any:
    tensor = host.to(torch.device(NAME, gpu)).as_strided(size, stride)
    if issubclass(cls, torch.nn.Parameter):
        return torch.nn.Parameter(tensor, requires_grad=requires_grad)
    return tensor.requires_grad_(requires_grad)


def _raise(error: DevshimError) -> NoReturn:
    raise error


def _feed_of(real: Callable[..., None]) -> Callable[..., None]:
    """Return a replacement for ``Queue._feed``, which the thread runs that writes to a queue."""

    def feed(*args: Any) -> None:
        dropping = Queue._on_queue_feeder_error  # type: ignore[attr-defined]
        _LOCAL.drops = dropping in args  # a subclass may tell its program instead
        real(*args)

    return feed


def patch() -> None:
    """Install the patches of this module."""
    real, replacement = reductions.reduce_tensor, _reduce_of(reductions.reduce_tensor)
    install(reductions, "reduce_tensor", replacement)
    registered = ForkingPickler._extra_reducers  # type: ignore[attr-defined]
    for cls in [each for each, reduce in registered.items() if reduce is real]:
        install_item(registered, cls, replacement)
    install(Queue, "_feed", staticmethod(_feed_of(Queue._feed)))  # type: ignore[attr-defined]
