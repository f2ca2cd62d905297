"""The values that a rank publishes for the others, step by step; this module is independent of the connection."""

from __future__ import annotations

import threading
from typing import Any

__all__ = ["StepStore"]

_KEPT = 3
"""The steps that are kept: if a rank has ended a step, all others have reached it, and have ended the one before."""


class StepStore:
    """The items of some ranks, by step and key; safe to use from any thread."""

    def __init__(self) -> None:
        self._items: dict[tuple[int, int], tuple[str, dict[str, Any]]] = {}
        self._changed = threading.Condition()

    def put(self, rank: int, number: int, what: str, items: dict[str, Any]) -> None:
        """Publish items of a rank for a step, in addition to earlier ones, and drop the items of old steps."""
        with self._changed:
            self._items.setdefault((rank, number), (what, {}))[1].update(items)
            self._items.pop((rank, number - _KEPT), None)
            self._changed.notify_all()

    def take(self, rank: int, number: int, key: str, what: str, timeout: float) -> tuple[str, list[Any]]:
        """Return the call of a rank in a step, and a list with the item of that key, as soon as both are known.

        The list is empty if the rank makes another call than ``what`` in that step. After a time-out, both results are
        empty.
        """

        def found() -> bool:
            said, items = self._items.get((rank, number), ("", {}))
            return bool(said) and (said != what or key in items)

        with self._changed:
            if not self._changed.wait_for(found, timeout):
                return "", []
            said, items = self._items[rank, number]
            return said, [items[key]] if said == what else []
