"""The values that a rank publishes for the others, step by step; this module does not know how ranks are connected."""

from __future__ import annotations

import threading
from typing import Any

__all__ = ["StepStore"]

_KEPT = 3
"""How many steps stay: a rank that has ended one knows that all others came to it, and so have ended the one before."""


class StepStore:
    """The items of some ranks, by step and key; safe to use from any thread."""

    def __init__(self) -> None:
        self._items: dict[tuple[int, int], tuple[str, dict[str, Any]]] = {}
        self._changed = threading.Condition()

    def put(self, rank: int, number: int, what: str, items: dict[str, Any]) -> None:
        """Put out items of a rank for a step, beside those that are there, and drop those of old steps."""
        with self._changed:
            self._items.setdefault((rank, number), (what, {}))[1].update(items)
            self._items.pop((rank, number - _KEPT), None)
            self._changed.notify_all()

    def take(self, rank: int, number: int, key: str, what: str, timeout: float) -> tuple[str, list[Any]]:
        """Return what a rank does in a step, and a list of the item with that key, as soon as both are known.

        The list is empty if the rank does something else than ``what`` in that step, or if the time is over; then the
        first result is empty, too.
        """

        def found() -> bool:
            said, items = self._items.get((rank, number), ("", {}))
            return bool(said) and (said != what or key in items)

        with self._changed:
            if not self._changed.wait_for(found, timeout):
                return "", []
            said, items = self._items[rank, number]
            return said, [items[key]] if said == what else []
