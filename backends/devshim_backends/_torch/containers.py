"""Containers that PyTorch knows: those registered with ``torch.utils._pytree``, and packed sequences.

A `PackedSequence` is a named tuple. Its ``batch_sizes`` stay on the host wherever its data is: PyTorch's own ``to``
leaves them there, and recurrent layers refuse any other device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import SUPPORTED_NODES

from devshim.contract.backend import Backend

if TYPE_CHECKING:
    from collections.abc import Callable

    Flat = tuple[list[Any], list[Any], Callable[[list[Any]], Any]]

_KEY_ATTRIBUTES = ("name", "key", "idx")
"""The attribute that stores the key, one for each PyTorch key type."""


class TorchContainers(Backend):
    """Mixin for containers."""

    def tree_flatten_one_level(self, node: object) -> Flat | None:
        if isinstance(node, PackedSequence):
            return _flatten_packed_sequence(node)
        registered = SUPPORTED_NODES.get(type(node))
        if registered is None:
            return None
        if registered.flatten_with_keys_fn is None:
            children, context = registered.flatten_fn(node)
            keys: list[Any] = list(range(len(children)))
        else:
            pairs, context = registered.flatten_with_keys_fn(node)
            keys, children = [_plain_key(key) for key, _ in pairs], [child for _, child in pairs]
        return keys, list(children), lambda new: registered.unflatten_fn(new, context)


def _flatten_packed_sequence(node: Any) -> Flat:
    names = ["data", "sorted_indices", "unsorted_indices"]

    def rebuild(new: list[Any]) -> Any:
        data, sorted_indices, unsorted_indices = new
        return type(node)(data, node.batch_sizes, sorted_indices, unsorted_indices)

    return names, [getattr(node, name) for name in names], rebuild


def _plain_key(key: Any) -> Any:
    for name in _KEY_ATTRIBUTES:
        if hasattr(key, name):
            return getattr(key, name)
    return str(key)
