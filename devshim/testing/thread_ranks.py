"""Ranks that are threads of one process: a `World` for each, connected by one store."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import devshim as ds
from devshim.contract.ranks import Place
from devshim.world.step_store import StepStore
from devshim.world.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from devshim.world.portable import Found
    from devshim.world.steps import Step

__all__ = ["on_ranks"]


class _Peers:
    """The other ranks, on a store of this process."""

    def __init__(self, store: StepStore, rank: int) -> None:
        self._store, self._rank = store, rank

    def put(self, step: Step, items: dict[str, Any]) -> None:
        self._store.put(self._rank, step.number, step.what, items)

    def take(self, step: Step, keys: Mapping[int, str], timeout: float) -> tuple[Found, set[int]]:
        until = time.monotonic() + timeout
        found: Found = {}
        for rank, key in keys.items():
            found[rank] = self._store.take(rank, step.number, key, step.what, max(until - time.monotonic(), 0.0))
        return found, set()


def on_ranks(
    size: int,
    work: Callable[[World], Any],
    *,
    timeout: float = 60.0,
    hosts: tuple[str, ...] = (),
    engine_address: str = "",
) -> list[Any]:
    """Run a function on several ranks at the same time, and return the result of each, or the error that it raised.

    Args:
        size: The number of ranks.
        work: Called with the world of each rank in its own thread, with the framework of the caller.
        timeout: As for `devshim.launch`, in seconds.
        hosts: The name of each rank's host; by default, the ranks are on two hosts in turn.
        engine_address: Where the framework's engine may listen; empty to use none.
    """
    store, name = StepStore(), ds.framework().__name__
    hosts = hosts or tuple(f"host{rank % 2}" for rank in range(size))
    results: list[Any] = [None] * size

    def body(rank: int) -> None:
        local = hosts[:rank].count(hosts[rank])
        place = Place(rank, size, local, hosts, engine_address=engine_address, timeout=timeout, launcher="devshim")
        try:
            with ds.using(name):
                results[rank] = work(World(place, lambda place: _Peers(store, place.rank)))
        except BaseException as error:
            results[rank] = error

    threads = [threading.Thread(target=body, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
