"""Replacing attributes of PyTorch, and restoring them.

What is patched, and why nothing else works, is said in the modules with patches: `tensors`, `comm`, `accelerator`,
`engine`, `indices`, `defaults` and `streams`.
"""

from __future__ import annotations

from typing import Any

_ABSENT = object()
_UNDO: list[tuple[Any, str, Any]] = []


def install(owner: Any, name: str, new: Any) -> None:
    """Replace an attribute until `uninstall_all`; an inherited attribute is restored by deleting the new one."""
    _UNDO.append((owner, name, vars(owner).get(name, _ABSENT)))
    setattr(owner, name, new)


def uninstall_all() -> None:
    """Restore all replaced attributes, the latest first."""
    while _UNDO:
        owner, name, old = _UNDO.pop()
        if old is _ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, old)
