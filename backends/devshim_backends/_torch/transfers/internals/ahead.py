"""Copies ahead of their use, on their own stream, and timers made of CUDA events.

Requirements of this module:

* A copy on the default stream would wait for the consumer's kernels. On a separate stream, it runs at the same time.
* A batch is used on the consumer's stream, and its memory belongs to the other stream. `record_stream` keeps PyTorch
  from reusing the memory for the next batch while the consumer's kernels still read it.
* Copies from pageable memory are slow and block the driver, so a tensor is pinned first, unless `pinned` or `coalesce`
  send it through pinned buffers anyway.
"""

from __future__ import annotations

import time
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch

from devshim.contract.backend import Backend
from devshim.devices.device import Device
from devshim_backends._torch.devices import native
from devshim_backends._torch.transfers.internals import coalesce, pinned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from devshim.contract.backend import Tensor

_streams: dict[Device, Any] = {}
"""The stream for copies to each card."""


def _nothing(xs: Iterable[Tensor]) -> None:
    """Do nothing: without streams, the tensors can be used in any thread."""


class TorchAhead(Backend):
    """The mixin for copies ahead and timers."""

    def copy_ahead(
        self, xs: Sequence[Tensor], device: Device
    ) -> AbstractContextManager[Callable[[Iterable[Tensor]], None]]:
        target = native(device)
        return _on_own_stream(xs, device, target) if target.type == "cuda" else nullcontext(_nothing)

    def pin(self, x: Tensor, device: Device) -> Tensor:
        if native(device).type != "cuda" or not x.is_cpu or not pinned.is_plain(x) or x.requires_grad:
            return x
        size = x.numel() * x.element_size()
        if not coalesce.SMALL_BYTES < size < pinned.LARGE_BYTES or x.is_pinned():
            return x
        try:
            result: Tensor = x.pin_memory()
        except RuntimeError:  # the driver cannot pin more memory: a limit of the machine, or too little is free
            return x
        return result

    def start_timer(self, device: Device) -> Callable[[], float]:
        card = native(device)
        if card.type != "cuda":
            return super().start_timer(device)
        self.synchronize(device)
        start = torch.cuda.Event(enable_timing=True)
        start.record(torch.cuda.current_stream(card))

        def stop() -> float:
            end = torch.cuda.Event(enable_timing=True)
            end.record(torch.cuda.current_stream(card))
            end.synchronize()
            left = time.perf_counter()
            self.synchronize(device)  # the events time the current stream; others may have work left
            return float(start.elapsed_time(end)) / 1e3 + time.perf_counter() - left

        return stop


@contextmanager
def _on_own_stream(xs: Sequence[Tensor], device: Device, card: Any) -> Iterator[Callable[[Iterable[Tensor]], None]]:
    """Copy on the card's stream for copies, and wait for it: the source may be overwritten after that."""
    stream = _streams.get(device)
    if stream is None:
        stream = _streams.setdefault(device, torch.cuda.Stream(card))
    for source in {x.device for x in xs if x.is_cuda}:  # the loader's kernels on a card may still be at work on them
        stream.wait_stream(torch.cuda.current_stream(source))

    def use(xs: Iterable[Tensor]) -> None:
        current = torch.cuda.current_stream(card)
        for x in xs:
            if x.is_cuda and x.layout is torch.strided:
                x.record_stream(current)

    with torch.cuda.stream(stream):
        yield use
    stream.synchronize()
