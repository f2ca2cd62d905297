"""Containers of PyTorch: those registered with ``torch.utils._pytree``, packed sequences, and graphs.

A graph of PyTorch Geometric (``Data``, ``HeteroData``, ``Batch``) has its tensors in stores, which are mappings. A
`PackedSequence` is a named tuple. Its ``batch_sizes`` stay on the host wherever its data is: PyTorch's own ``to``
leaves them there, and recurrent layers refuse any other device.
"""

from __future__ import annotations

import copy
import sys
from typing import TYPE_CHECKING, Any

import torch
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
        if _is_graph(node):
            return _flatten_graph(node)
        registered = SUPPORTED_NODES.get(type(node))
        if registered is None:
            return None
        if registered.flatten_with_keys_fn is None:
            children, context = registered.flatten_fn(node)
            keys: list[Any] = list(range(len(children)))
        else:
            pairs, context = registered.flatten_with_keys_fn(node)
            keys, children = [_plain_key(key) for key, _ in pairs], [child for _, child in pairs]
        if _is_tensordict(node):
            return keys, list(children), _TensordictRebuilder(node, registered, context)
        return keys, list(children), lambda new: registered.unflatten_fn(new, context)

    def why_inseparable(self, node: object) -> tuple[str, str] | None:
        if isinstance(node, PackedSequence):
            hint = "unpack it first: torch.nn.utils.rnn.pad_packed_sequence(x, batch_first=True)"
            return "the rows of its data belong to its batch_sizes", hint
        if _is_graph(node):
            hint = "pass its tensors, such as graph.x; for whole graphs, use torch_geometric.data.Batch"
            return "its edges are indices of its nodes", hint
        return None

    def static_data(self, node: object) -> object:
        registered = SUPPORTED_NODES.get(type(node))
        if registered is None or _is_tensordict(node):  # see `_rebuild_tensordict`
            return None
        context = registered.flatten_fn(node)[1]
        # In a dataclass, it is a tuple of the values of the static fields.
        return list(context) if isinstance(context, tuple) and hasattr(type(node), "__dataclass_fields__") else context


def _flatten_packed_sequence(node: Any) -> Flat:
    names = ["data", "sorted_indices", "unsorted_indices"]

    def rebuild(new: list[Any]) -> Any:
        data, sorted_indices, unsorted_indices = new
        return type(node)(data, node.batch_sizes, sorted_indices, unsorted_indices)

    return names, [getattr(node, name) for name in names], rebuild


def _is_tensordict(node: Any) -> bool:
    is_tensordict: Any = getattr(sys.modules.get("tensordict"), "is_tensor_collection", None)
    return is_tensordict is not None and bool(is_tensordict(node))


class _TensordictRebuilder:
    """A function that rebuilds a `TensorDict` or a tensorclass around other tensors.

    Attributes:
        keeps_fields: True: a tensorclass, which is a dataclass, is not copied with other attributes instead, because
            its batch size and its device would be those of the old tensors.
    """

    keeps_fields = True

    def __init__(self, node: Any, registered: Any, context: Any) -> None:
        self._arguments = node, registered, context

    def __call__(self, new: list[Any]) -> Any:
        node, registered, context = self._arguments
        return _rebuild_tensordict(node, new, registered, context)


def _rebuild_tensordict(node: Any, new: list[Any], registered: Any, context: Any) -> Any:
    """Rebuild a `TensorDict` or a tensorclass, with the batch size, names, device and lock that the library leaves out.

    The library's function for pytrees guesses the batch size of tensors that were cut or joined, and changes the
    context. It removes the device if the tensors are on another one, and the lock; the library's ``to`` keeps both.
    """
    made = registered.unflatten_fn(new, dict(context))
    if made is None:  # the library's result if a child is None, as in a check of the structure before a load
        return None
    shapes = [x.shape for x in new if isinstance(x, torch.Tensor)] or [x.shape for x in new if _is_tensordict(x)]
    if shapes and "stack_dim" not in context:  # a lazy stack has the batch size of its children
        batch_size = shapes[0][: len(node.batch_size)]
        if made.batch_size != batch_size:
            made.batch_size = batch_size
        if made.names != node.names:
            made.names = node.names
    if node.device is not None:
        made.auto_device_()
    return made.lock_() if node.is_locked else made


def _is_graph(node: Any) -> bool:
    geometric: Any = sys.modules.get("torch_geometric.data.data")
    return geometric is not None and isinstance(node, geometric.BaseData)


def _flatten_graph(graph: Any) -> Flat:
    names: list[Any] = []
    values: list[Any] = []
    for store in graph.stores:
        for key, value in store.items():
            names.append(key if store._key is None else f"{store._key}.{key}")  # the type of its nodes or edges
            values.append(value)

    def rebuild(new: list[Any]) -> Any:
        made, remaining = copy.copy(graph), iter(new)  # a copy has stores of its own
        for store in made.stores:
            for key in list(store.keys()):
                store[key] = next(remaining)
        return made

    return names, values, rebuild


def _plain_key(key: Any) -> Any:
    for name in _KEY_ATTRIBUTES:
        if hasattr(key, name):
            return getattr(key, name)
    return str(key)
