"""The contract for transfers other than `copy_to`: reports of implicit ones, copies ahead of their use, and their time.

An adapter implements `report_implicit_transfers` in ``transfers/implicit.py``; a backend without it reports nothing,
which is a gap of the feature ``guard``. The others have defaults that are right on every framework; an adapter
implements them in ``transfers/internals/ahead.py`` where its framework has streams.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device

__all__ = ["TransferHookBackend"]


class TransferHookBackend:
    """The mixin of `Backend` for reporting implicit transfers."""

    def report_implicit_transfers(
        self, report: Callable[[Device | None, Device, str], None]
    ) -> AbstractContextManager[object]:
        """Return a context that calls ``report(source, target, what)`` for each implicit transfer of the framework.

        It covers every thread. If ``report`` raises, the copy is not made. devshim's own copies may be reported, too.
        The source is None if it is a GPU and the framework does not say which one.
        """
        return nullcontext()

    def copy_ahead(
        self, xs: Sequence[Tensor], device: Device
    ) -> AbstractContextManager[Callable[[Iterable[Tensor]], None]]:
        """Return a context in which one thread copies tensors to a device for another thread, while that one computes.

        ``xs`` are the tensors that will be copied. The copies are complete when the context is left. It yields a
        function that the other thread calls with the copies when it gets them, and that tells the framework who uses
        them.
        """
        return nullcontext(_nothing)

    def pin(self, x: Tensor, device: Device) -> Tensor:
        """Return a copy of a host tensor in pinned memory if copies to the device are faster from there, or ``x``."""
        return x

    def close_loader(self, batches: Iterator[Any]) -> None:
        """End the threads and processes of an iterator that is not used again, if the framework's loader made it.

        `devshim.prefetch` calls it on every framework. Only a loader that keeps them after a loop that ended early
        needs it.
        """

    def start_timer(self, device: Device) -> Callable[[], float]:
        """Wait for a device, and return a function that waits again and returns the seconds in between."""
        self.synchronize(device)  # type: ignore[attr-defined]  # the backend's own
        start = time.perf_counter()

        def stop() -> float:
            self.synchronize(device)  # type: ignore[attr-defined]
            return time.perf_counter() - start

        return stop


def _nothing(xs: Iterable[Tensor]) -> None:
    """Do nothing: the tensors can be used in any thread."""
