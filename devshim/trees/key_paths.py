"""Key paths: the keys that lead to an object in a tree, and how they are written."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    Path = tuple[object, ...]
    Cell = tuple[Any, object]
    """A container's own cell and a key in that container; even a path of 10,000 keys costs nothing this way."""

__all__ = ["brackets", "key_path", "path_text"]


def key_path(cell: Cell | None) -> Path:
    """Return the keys that lead from the root to a tensor."""
    keys: list[object] = []
    while cell is not None:
        cell, key = cell
        keys.append(key)
    return tuple(reversed(keys[:-1]))  # the root itself has no key


def path_text(cell: Cell | None) -> str:
    """Return the keys that lead to an object as a `Placement` writes them, joined by dots."""
    return ".".join(map(str, key_path(cell)))


def brackets(cell: Cell | None) -> str:
    """Return the keys that lead to an object as Python writes them: ``['a'][0]``; empty for the tree itself."""
    return "".join(f"[{part!r}]" for part in key_path(cell))
