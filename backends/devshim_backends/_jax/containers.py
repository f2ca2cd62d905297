"""Containers that are registered with JAX: sparse arrays, equinox modules, flax states, and users' classes.

A state of NNX has the key paths of the module that it belongs to, so that one `Placement` or checkpoint serves both.
"""

from __future__ import annotations

import sys
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
        nnx = sys.modules.get("flax.nnx")
        if nnx is not None and isinstance(node, nnx.State):
            return _of_state(nnx, node)
        found, structure = tree_util.tree_flatten_with_path(node, is_leaf=lambda x: x is not node)
        keys = [_key(path[-1]) for path, _ in found]
        return keys, [child for _, child in found], lambda new: tree_util.tree_unflatten(structure, new)

    def why_inseparable(self, node: object) -> tuple[str, str] | None:
        sparse = sys.modules.get("jax.experimental.sparse")
        if sparse is None or not isinstance(node, sparse.JAXSparse):
            return None
        return "its indices belong to its values", "make it dense first: x.todense()"

    def static_data(self, node: object) -> object:
        if tree_util.all_leaves((node,)) or (isinstance(node, tuple) and hasattr(node, "_fields")):
            return None
        described = tree_util.tree_structure(node, is_leaf=lambda x: x is not node).node_data()
        static = None if described is None else described[1]
        # In a dataclass, it is a tuple of the values of the static fields.
        return list(static) if isinstance(static, tuple) and hasattr(type(node), "__dataclass_fields__") else static


def _of_state(nnx: Any, state: Any) -> tuple[list[Any], list[Any], Callable[[list[Any]], Any]]:
    """Flatten an NNX state to its arrays, by the key paths that they have in the module."""
    structure = tree_util.tree_structure(state)
    keys, found = [], []
    for path, each in tree_util.tree_flatten_with_path(state, is_leaf=lambda x: isinstance(x, nnx.Variable))[0]:
        for below, value in tree_util.tree_flatten_with_path(each)[0]:
            inner = below[1:] if isinstance(each, nnx.Variable) else below  # without the key of a variable's value
            keys.append(".".join(str(_key(key)) for key in (*path, *inner)))
            found.append(value)
    return keys, found, lambda new: tree_util.tree_unflatten(structure, new)


def _key(key: Any) -> Any:
    for name in _NAMES:
        if hasattr(key, name):
            return getattr(key, name)
    return str(key)  # a key of a user's class
