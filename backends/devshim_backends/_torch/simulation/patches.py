"""Putting something in the place of PyTorch's own, and putting PyTorch's own back.

What is patched, and why nothing else would do, stands beside each patch: `tensors`, `comm`, `accelerator`, `engine`.
"""

from __future__ import annotations

from typing import Any

_ABSENT = object()
_UNDO: list[tuple[Any, str, Any]] = []


def put(owner: Any, name: str, new: Any) -> None:
    """Replace an attribute until `remove_all`; one that is inherited is given back by removing the new one."""
    _UNDO.append((owner, name, vars(owner).get(name, _ABSENT)))
    setattr(owner, name, new)


def remove_all() -> None:
    """Give PyTorch everything back, the latest first."""
    while _UNDO:
        owner, name, old = _UNDO.pop()
        if old is _ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, old)
