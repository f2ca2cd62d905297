"""Attributes of a framework that devshim replaces for a time, and restores exactly."""

from __future__ import annotations

TYPE_CHECKING: bool = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["Patches"]

_ABSENT = object()


class Patches:
    """Replaced attributes and items, which `undo` restores in the opposite order.

    An attribute that a class or an instance inherited is restored by deleting the new one, so that ``vars(owner)`` is
    what it was. A name that ``owner`` does not have may be added with `replace`, too.

    >>> class Frame: count = 0
    >>> patches = Patches()
    >>> patches.replace(Frame, "count", 2); patches.replace(Frame, "name", "gpu")
    >>> Frame.count, Frame.name
    (2, 'gpu')
    >>> patches.undo(); Frame.count, hasattr(Frame, "name")
    (0, False)
    """

    def __init__(self) -> None:
        self._attributes: list[tuple[Any, str, Any]] = []
        self._items: list[tuple[Any, Any, Any]] = []

    def __bool__(self) -> bool:
        return bool(self._attributes or self._items)

    def replace(self, owner: Any, name: str, new: Any) -> None:
        """Set an attribute of a module, a class or an object until `undo`."""
        self._attributes.append((owner, name, vars(owner).get(name, _ABSENT)))
        setattr(owner, name, new)

    def replaced(self) -> list[tuple[Any, Any]]:
        """Return the old and the new value of each attribute that existed before."""
        return [(old, vars(owner).get(name)) for owner, name, old in self._attributes if old is not _ABSENT]

    def replace_item(self, mapping: Any, key: Any, new: Any) -> None:
        """Set an item of a dictionary until `undo`."""
        self._items.append((mapping, key, mapping.get(key, _ABSENT)))
        mapping[key] = new

    def undo(self) -> None:
        """Restore everything that was replaced, the latest first."""
        while self._items:
            mapping, key, old = self._items.pop()
            if old is _ABSENT:
                mapping.pop(key, None)
            else:
                mapping[key] = old
        while self._attributes:
            owner, name, old = self._attributes.pop()
            if old is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, old)
