"""The optimizers that another one wraps, such as ``LookAhead(AdamW(...))``; for adapters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devshim.contract.blocks import join_path

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

__all__ = ["wrapped_optimizers"]


def wrapped_optimizers(optimizer: Any, kind: type, skipped: Collection[str]) -> dict[str, Any]:
    """Return the optimizers that one wraps, at any depth and each once, by their paths.

    They are in its attributes, or in lists, tuples and dictionaries there.

    Args:
        optimizer: The outermost one, which is not in the result.
        kind: The framework's class of optimizers.
        skipped: The names of attributes that contain no optimizer, such as the state.
    """
    known, pending = {id(optimizer)}, [("", optimizer)]
    for path, each in pending:  # which grows
        searched = {name: value for name, value in vars(each).items() if name not in skipped}
        for name, inner in _search("", searched, kind, set()):
            if id(inner) not in known:
                known.add(id(inner))
                pending.append((join_path(path, name), inner))
    return dict(pending[1:])


def _search(path: str, value: Any, kind: type, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Yield the optimizers in nested dictionaries, lists and tuples, but not inside an optimizer."""
    if isinstance(value, kind):
        yield path, value
    elif isinstance(value, (dict, list, tuple)) and id(value) not in seen:
        seen.add(id(value))
        for key, each in list(value.items()) if isinstance(value, dict) else enumerate(value):
            yield from _search(join_path(path, key), each, kind, seen)
