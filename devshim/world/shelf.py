"""The shelf of a host: where its ranks put what their peers fetch, for the last collectives of each rank."""

from __future__ import annotations

import threading
from typing import Any

__all__ = ["Shelf"]

KEPT = 3
"""For how many collectives of a rank its items stay."""


class Shelf:
    """Items of collectives, by rank, number of the collective, and key; safe to use from several threads."""

    def __init__(self) -> None:
        self._items: dict[tuple[int, int], tuple[str, dict[Any, Any]]] = {}
        self._changed = threading.Condition()

    def put(self, rank: int, number: int, what: str, items: dict[Any, Any]) -> None:
        """Put a rank's items of a collective here, together with its description."""
        with self._changed:
            self._items[rank, number] = what, items
            self._items.pop((rank, number - KEPT), None)
            self._changed.notify_all()

    def take(self, rank: int, number: int, key: Any, timeout: float) -> tuple[str, Any]:
        """Return the description of a rank's collective and one of its items; wait until they are here.

        If the rank described another collective, it may have no such item: the item is then None.

        Raises:
            TimeoutError: They did not arrive in ``timeout`` seconds.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: (rank, number) in self._items, timeout):
                msg = f"rank {rank} has not come to step {number} in {timeout:g} s"
                raise TimeoutError(msg)
            what, items = self._items[rank, number]
            return what, items.get(key)
