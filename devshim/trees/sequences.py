"""Lists and tuples, and the tensors in them: for adapters, which do not see other containers."""

from __future__ import annotations

from typing import Any

__all__ = ["rebuild_sequence"]


def rebuild_sequence(original: Any, items: list[Any]) -> Any:
    """Return items in a list or tuple of the type of another, which may be a named tuple."""
    return original._make(items) if hasattr(original, "_make") else type(original)(items)
