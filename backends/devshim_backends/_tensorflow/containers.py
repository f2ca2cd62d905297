"""Containers of TensorFlow: extension types and other composites, tensor arrays, classes with ``__tf_flatten__``.

A composite of handles (a dataset, an iterator, a table) does not count as a container, because tensors do not have its
data.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from devshim.contract.backend import Backend

if TYPE_CHECKING:
    from collections.abc import Callable

    Flat = tuple[list[Any], list[Any], Callable[[list[Any]], Any]]

_COMPOSITE: Any = tf.__internal__.CompositeTensor
_HANDLES = (tf.resource, tf.variant)


class TensorflowContainers(Backend):
    """The mixin for containers."""

    def tree_flatten_one_level(self, node: object) -> Flat | None:
        if isinstance(node, _COMPOSITE):
            return _flatten_composite(node)
        if isinstance(node, tf.TensorArray):
            return _flatten_array(node)
        cls: Any = type(node)
        if hasattr(cls, "__tf_flatten__") and hasattr(cls, "__tf_unflatten__"):
            metadata, components = node.__tf_flatten__()  # type: ignore[attr-defined]
            keys = list(range(len(components)))
            return keys, list(components), lambda new: cls.__tf_unflatten__(metadata, tuple(new))
        return None

    def why_inseparable(self, node: object) -> tuple[str, str] | None:
        for value in _fields(node) if isinstance(node, tf.experimental.ExtensionType) else ():
            for part in tf.nest.flatten(value):
                if isinstance(part, (tf.SparseTensor, tf.RaggedTensor)):
                    hint = "make it dense first: tf.sparse.to_dense(x), or x.to_tensor() if it is ragged"
                    return f"a {type(part).__name__} in it has tensors that belong together", hint
        return None

    def static_data(self, node: object) -> object:
        cls: Any = type(node)
        if isinstance(node, tf.experimental.ExtensionType):
            return [tuple(x) if isinstance(x, tf.TensorShape) and x.rank is not None else x for x in _fields(node)]
        return node.__tf_flatten__()[0] if hasattr(cls, "__tf_unflatten__") else None  # type: ignore[attr-defined]


def _fields(node: Any) -> list[Any]:
    """Return the values of the fields of an extension type."""
    return [getattr(node, field.name) for field in type(node)._tf_extension_type_fields()]


def _flatten_array(node: Any) -> Flat | None:
    """Return the tensors that were written to a `tf.TensorArray`; None for one that a compiled function is tracing.

    Reading them with its own methods would clear it.
    """
    made_eagerly = node._implementation
    written = getattr(made_eagerly, "_tensor_array", None)
    if written is None:
        return None
    keys = [i for i, x in enumerate(written) if x is not None]

    def rebuild(new: list[Any]) -> Any:
        made = copy.copy(made_eagerly)
        made._previously_read_indices = list(made_eagerly._previously_read_indices)
        made._tensor_array = list(written)
        for i, x in zip(keys, new, strict=True):
            made._tensor_array[i] = x
        array = tf.TensorArray(node.dtype, size=0)
        made.parent = array._implementation.parent  # `write` returns it
        array._implementation = made
        return array

    return keys, [written[i] for i in keys], rebuild


def _flatten_composite(node: Any) -> Flat | None:
    parts = tf.nest.flatten(node, expand_composites=True)
    if any(part.dtype in _HANDLES for part in parts):
        return None
    return (
        _field_names(node, len(parts)),
        parts,
        lambda new: tf.nest.pack_sequence_as(node, new, expand_composites=True),
    )


def _field_names(node: Any, count: int) -> list[Any]:
    """Return the names of an extension type's fields, with numbers for fields of several tensors, or only numbers."""
    if not isinstance(node, tf.experimental.ExtensionType):
        return list(range(count))
    keys: list[Any] = []
    for field in type(node)._tf_extension_type_fields():
        parts = tf.nest.flatten(getattr(node, field.name), expand_composites=True)
        tensors = [part for part in parts if tf.is_tensor(part)]
        keys += [field.name] if len(tensors) == 1 else [f"{field.name}.{i}" for i in range(len(tensors))]
    return keys if len(keys) == count else list(range(count))
