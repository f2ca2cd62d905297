"""Ranks that are threads of one process: a `World` for each, connected by one shelf."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from devshim.contract.ranks import Place
from devshim.world.portable import Found
from devshim.world.shelf import Shelf
from devshim.world.steps import Step
from devshim.world.world import World


class _Peers:
    """The other ranks, on a shelf of this process."""

    def __init__(self, shelf: Shelf, rank: int) -> None:
        self._shelf, self._rank = shelf, rank

    def put(self, step: Step, items: dict[str, Any]) -> None:
        self._shelf.put(self._rank, step.number, step.what, items)

    def take(self, step: Step, keys: Mapping[int, str], timeout: float) -> tuple[Found, set[int]]:
        until = time.monotonic() + timeout
        found: Found = {}
        for rank, key in keys.items():
            found[rank] = self._shelf.take(rank, step.number, key, step.what, max(until - time.monotonic(), 0.0))
        return found, set()


def in_ranks(size: int, job: Callable[[World], Any], timeout: float = 60.0) -> list[Any]:
    """Return what each rank returned, or the error that it raised."""
    shelf = Shelf()
    results: list[Any] = [None] * size
    hosts = tuple(f"host{rank // 2}" for rank in range(size))

    def run(rank: int) -> None:
        place = Place(rank, size, rank % 2, hosts, timeout=timeout, launcher="devshim")
        try:
            results[rank] = job(World(place, lambda place: _Peers(shelf, place.rank)))
        except BaseException as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
