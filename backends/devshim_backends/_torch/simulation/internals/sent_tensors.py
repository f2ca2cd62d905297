"""Tensors that a program sends to another process, in a queue or a pipe.

On real GPUs, both processes use the same memory afterwards. A simulated GPU's memory belongs to one process. Therefore:

* A worker of a `DataLoader` sends copies, through memory of the host. It has no use for a batch that it has sent.
* A `DataLoader` sends copies to its new workers: they read the tensors in its data set. Tensors that share memory share
  it there, too. Later changes are not sent.
* Otherwise, the receiver might wait for what the sender writes, so the tensor is refused. The thread that writes to a
  `multiprocessing.Queue` has no caller: it would print the error, and the receiver would wait forever. Therefore the
  receiver gets the error, from ``queue.get()``.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from multiprocessing.queues import Queue
from multiprocessing.reduction import ForkingPickler
from typing import Any, NoReturn

import torch
from torch.multiprocessing import reductions
from torch.utils.data import get_worker_info
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter as _Iterator

from devshim.errors import DevshimError, SimulationError, UnsupportedError
from devshim_backends._torch.simulation.internals.patches import install, install_item
from devshim_backends._torch.simulation.internals.state import NAME, SIMULATION, shown_device

__all__ = ["patch", "sharing_error"]


class _Local(threading.local):
    """The state of a thread that writes tensors.

    Attributes:
        drops: True in a thread that writes to a queue, and drops what it cannot write.
        wholes: In a thread that starts workers of a loader, the memory that it sends: GPU and address -> a tensor of
            all bytes, and its parts. It is None in other threads.
    """

    drops = False
    wholes: dict[tuple[int, int], tuple[Any, Any]] | None = None


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
            if _LOCAL.wholes is not None:
                return _reduce_to_view(tensor, _LOCAL.wholes)
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


def _reduce_to_view(tensor: Any, wholes: dict[tuple[int, int], tuple[Any, Any]]) -> Any:
    """Take a tensor apart: a tensor of all bytes of its memory, which is sent once, and its place there."""
    plain = tensor.detach().resolve_conj().resolve_neg()
    storage = plain.untyped_storage()
    key = plain.get_device(), storage.data_ptr()  # empty ones have no address
    if key not in wholes:
        whole = torch.empty(0, dtype=torch.uint8, device=plain.device).set_(storage)
        wholes[key] = whole, _reduce_to_copy(whole)
    whole, reduced = wholes[key]
    if tensor is whole:
        return reduced
    place = plain.storage_offset(), tuple(plain.shape), plain.stride()
    return _rebuild_view, (type(tensor), whole, plain.dtype, *place, tensor.requires_grad)


def _rebuild_view(cls: Any, whole: Any, dtype: Any, offset: int, size: Any, stride: Any, requires_grad: bool) -> Any:
    tensor = torch.empty(0, dtype=dtype, device=whole.device).set_(whole.untyped_storage(), offset, size, stride)
    return _finish(cls, tensor, requires_grad)


def _rebuild(cls: Any, host: Any, gpu: int, size: Any, stride: Any, requires_grad: bool) -> Any:
    if gpu >= SIMULATION.count:
        msg = f"a process that simulates {SIMULATION.count} GPUs received a tensor of simulated GPU {gpu}"
        raise SimulationError(
            msg, "simulate the GPUs in each process: call ds.simulate above if __name__ == '__main__'"
        )
    return _finish(cls, host.to(torch.device(NAME, gpu)).as_strided(size, stride), requires_grad)


def _finish(cls: Any, tensor: Any, requires_grad: bool) -> Any:
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


def _start_workers_of(real: Callable[..., None]) -> Callable[..., None]:
    """Return a replacement for the ``__init__`` of a loader's iterator, which starts the workers."""

    @functools.wraps(real)
    def init(self: Any, loader: Any) -> None:
        outer = _LOCAL.wholes
        _LOCAL.wholes = self._devshim_sent = {}  # the iterator keeps the copies, which a worker may open later
        try:
            real(self, loader)
        finally:
            _LOCAL.wholes = outer

    return init


def patch() -> None:
    """Install the patches of this module."""
    real, replacement = reductions.reduce_tensor, _reduce_of(reductions.reduce_tensor)
    install(reductions, "reduce_tensor", replacement)
    registered = ForkingPickler._extra_reducers  # type: ignore[attr-defined]
    for cls in [each for each, reduce in registered.items() if reduce is real]:
        install_item(registered, cls, replacement)
    install(_Iterator, "__init__", _start_workers_of(_Iterator.__init__))
    install(Queue, "_feed", staticmethod(_feed_of(Queue._feed)))  # type: ignore[attr-defined]
