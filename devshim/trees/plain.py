"""Fast path for plain trees: nested dicts, lists and tuples, of exactly these types, whose leaves are only tensors.

The trees of most programs are such. `collect` returns False for every other tree, and for one so deep that it may
contain itself; `devshim.trees.multi_map` and `devshim.trees.flatten` walk those.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devshim.registry import registry

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["collect", "rebuild"]

_DEEPEST = 50
_NODES = frozenset({dict, list, tuple})


def collect(tree: Any, found: list[Any], depth: int = 0) -> bool:
    """Append the tensors of a plain tree to a list, in order; return False if the tree is not plain."""
    kind, tensors = type(tree), registry.TENSORS
    if kind is dict:
        tree = tree.values()
    elif kind is not list and kind is not tuple:
        if kind not in tensors:
            return False
        found.append(tree)
        return True
    if depth >= _DEEPEST:
        return False
    for each in tree:
        kind = type(each)
        if kind in tensors:
            found.append(each)
        elif kind is dict:  # such as a layer; a loop here takes less time than a call
            for below in each.values():
                if type(below) in tensors:
                    found.append(below)
                elif not collect(below, found, depth + 2):
                    return False
        elif not collect(each, found, depth + 1):
            return False
    return True


def rebuild(tree: Any, new: Iterator[Any]) -> Any:
    """Return a plain tree with the next objects instead of its tensors."""
    kind = type(tree)
    if kind is dict:  # loops, because a comprehension is one more call of a function
        fields = {}
        for key, each in tree.items():
            fields[key] = rebuild(each, new) if type(each) in _NODES else next(new)
        return fields
    if kind in _NODES:
        items = []
        for each in tree:
            items.append(rebuild(each, new) if type(each) in _NODES else next(new))
        return items if kind is list else tuple(items)
    return next(new)
