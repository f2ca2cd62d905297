"""Batches that a program has in memory already, for the host: `devshim.prefetch` copies each when the loop asks for it.

A thread would copy a small batch while the loop computes, but each time that the two pass Python's lock to each other
takes as long as the copy itself.
"""

from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from devshim.devices.device import CPU
from devshim.registry import current, registry
from devshim.runtime import ahead
from devshim.transfers import observers, observing
from devshim.trees import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

T = TypeVar("T")

__all__ = ["Batches", "are_small"]

SMALL = 1 << 20
"""Bytes of a batch, which take about a tenth of a millisecond to copy."""


def are_small(batches: Any) -> bool:
    """Return True for a list or tuple of batches of tensors, whose first batch has few bytes."""
    if type(batches) not in (list, tuple):
        return False
    first: list[Any] = []
    if not batches or not plain.collect(batches[0], first):
        return not batches
    return sum(registry.TENSORS[type(x)].nbytes(x) for x in first) <= SMALL


class Batches(Generic[T]):
    """One iteration, without a thread; several threads may share it.

    Each batch is copied with the framework, ledgers and guards that are in effect when the iteration begins.

    Args:
        batches: The list or tuple.
        caller: The user's line, for ledgers.
    """

    def __init__(self, batches: Iterable[T], caller: Any) -> None:
        self._backend = current.current()
        observing.show_call(self._backend, "place", CPU)
        self._context = contextvars.copy_context()
        self._context.run(observers.CALLER.set, caller)
        self._source: Iterator[T] = iter(batches)

    def __iter__(self) -> Batches[T]:
        return self

    def __next__(self) -> T:
        batch = next(self._source)
        copied = ahead.copy_on_host(batch, self._backend)
        if copied is not None:
            return copied  # type: ignore[no-any-return]  # the batch, with other tensors
        try:  # a context can be entered once at a time, so each batch has a copy, which takes no time
            copied, arrived = self._context.copy().run(ahead.send, batch, self._backend, CPU)
            for use, xs in arrived:
                use(xs)
        except BaseException:
            self.close()
            raise
        return copied  # type: ignore[no-any-return]  # the batch, with other tensors

    def close(self) -> None:
        """End the iteration."""
        self._source = iter(())
