"""Containers that are registered with JAX: sparse arrays, equinox modules, flax states, and users' classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jax import tree_util

from devshim.contract.backend import Backend

if TYPE_CHECKING:
    from collections.abc import Callable

_NAMES = ("name", "key", "idx")
"""The names of the attribute that has the key itself, one for each JAX key type."""


class JaxContainers(Backend):
    """The mixin for containers."""

    def tree_flatten_one_level(self, node: object) -> tuple[list[Any], list[Any], Callable[[list[Any]], Any]] | None:
        # JAX treats every named tuple as a container, registered or not, so they are left to devshim's own handling.
        if (isinstance(node, tuple) and hasattr(node, "_fields")) or tree_util.all_leaves((node,)):
            return None
        found, structure = tree_util.tree_flatten_with_path(node, is_leaf=lambda x: x is not node)
        keys = [_key(path[-1]) for path, _ in found]
        return keys, [child for _, child in found], lambda new: tree_util.tree_unflatten(structure, new)


def _key(key: Any) -> Any:
    for name in _NAMES:
        if hasattr(key, name):
            return getattr(key, name)
    return str(key)  # a key of a user's class
