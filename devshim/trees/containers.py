"""Containers: the children of one node of a tree, and how to rebuild the node around other children.

Requirements of this module:

* All containers that users meet are supported: those of Python and their subclasses, named tuples, dataclasses, attrs
  classes, mappings of any class, and every class registered as a pytree with a framework, with Keras or with optree.
* A container is rebuilt as the same type, with everything it holds besides its children. The original is never changed.
* If a container cannot be rebuilt like that, moving a tensor in it raises an error; the tensor is never left behind.
"""

from __future__ import annotations

import copy
import dataclasses
import sys
from collections import ChainMap, Counter, UserList, defaultdict, deque
from collections.abc import Mapping, MutableMapping
from functools import partial
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from devshim._compiler_marks import constant_under_compile
from devshim.errors import ArgumentError
from devshim.errors.formatting import type_name
from devshim.registry import registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from devshim.contract.backend import Backend

    Flat = tuple[list[Any], list[Any], Callable[[list[Any]], Any]]
    """A container's keys, its children, and a function that rebuilds it around others."""

__all__ = ["NAMESPACE", "children"]

NAMESPACE = "devshim"
"""The optree namespace in which node types may be registered only for devshim."""


def children(node: Any, backends: Sequence[Backend] | None = None) -> Flat | None:
    """Return a container's keys, its children, and a function that rebuilds it around others; None for a leaf.

    Args:
        node: Anything but a tensor or a model.
        backends: The frameworks whose registries are used; the default is those that are imported.
    """
    cls = type(node)
    if cls in registry.LEAF_TYPES:
        return None
    if cls is dict:  # torch.compile does not support copy.copy
        return list(node), list(node.values()), lambda new: dict(zip(node, new, strict=True))
    if cls is list:
        return list(range(len(node))), list(node), list
    if cls is tuple:
        return list(range(len(node))), list(node), tuple
    if isinstance(node, dict):
        return list(node), list(node.values()), lambda new: _refill(node, zip(node, new, strict=True))
    if isinstance(node, (list, UserList)):
        return list(range(len(node))), list(node), lambda new: _refill(node, enumerate(new))
    return _flatten_registered(node, backends) or _of_python(node) or _by_optree(node) or _of_mapping(node)


def _flatten_registered(node: Any, backends: Sequence[Backend] | None) -> Flat | None:
    """Flatten a node that a framework knows: registered as a pytree, or a container class of the framework."""
    for backend in registry.backends_with_containers() if backends is None else backends:
        flat = backend.tree_flatten_one_level(node)
        if flat is not None:
            return _keep_fields(node, flat)
    return None


def _keep_fields(node: Any, flat: Flat) -> Flat:
    """Return ``flat``, but rebuild a dataclass as a copy, with the fields that a registry may drop (PyTorch)."""
    keys, found, rebuild = flat
    if getattr(rebuild, "keeps_fields", False):  # the adapter has done it
        return flat
    if not hasattr(type(node), "__dataclass_fields__") or not all(isinstance(key, str) for key in keys):
        return flat
    if any(getattr(node, key, None) is not child for key, child in zip(keys, found, strict=True)):
        return flat
    return keys, found, lambda new: _replace_attributes(node, keys, new)


def _of_python(node: Any) -> Flat | None:
    """Flatten a named tuple, a deque, a chain of maps, a dataclass, an attrs class, or a namespace."""
    cls = type(node)
    if isinstance(node, tuple):
        return _of_tuple(node)
    if isinstance(node, deque):
        return list(range(len(node))), list(node), lambda new: _rebuild_deque(node, new)
    if isinstance(node, ChainMap):  # values that an earlier map hides move, too
        return list(range(len(node.maps))), list(node.maps), lambda new: _rebuild_chain(node, new)
    if hasattr(cls, "__dataclass_fields__"):
        names = [field.name for field in dataclasses.fields(node) if hasattr(node, field.name)]
    elif hasattr(cls, "__attrs_attrs__"):
        names = [field.name for field in cls.__attrs_attrs__ if hasattr(node, field.name)]
    elif isinstance(node, SimpleNamespace):
        names = list(vars(node))
    else:
        return None
    return list(names), [getattr(node, name) for name in names], lambda new: _replace_attributes(node, names, new)


def _of_tuple(node: Any) -> Flat:
    """Flatten a named tuple, a tuple that optree knows (such as `time.struct_time`), or any other subclass."""
    cls = type(node)
    fields = getattr(cls, "_fields", None)
    if fields is not None and hasattr(cls, "_make"):
        rebuild = partial(_remake, node) if _has_attributes(cls) else cls._make
        return list(fields), list(node), rebuild
    return _by_optree(node) or (list(range(len(node))), list(node), lambda new: _rebuild_tuple(node, new))


def _by_optree(node: Any) -> Flat | None:
    """Flatten a node registered with optree for devshim or by Keras, or known to optree itself (`time.struct_time`)."""
    import optree

    # Test first: the error for a leaf contains its whole repr, which may be pages long and may copy data.
    names = (NAMESPACE, "keras") if "keras" in sys.modules else (NAMESPACE,)
    known = [name for name in names if not optree.tree_is_leaf(node, none_is_leaf=True, namespace=name)]
    if not known:
        return None
    found, metadata, entries, rebuild = optree.tree_flatten_one_level(node, none_is_leaf=True, namespace=known[0])
    return list(entries), list(found), lambda new: rebuild(metadata, tuple(new))


# ---------------------------------------------------------------------- rebuilding
@constant_under_compile
def _has_attributes(cls: type) -> bool:
    """Return True if instances of a class can have attributes besides its slots."""
    return bool(cls.__dictoffset__)


def _remake(node: Any, values: list[Any]) -> Any:
    """Return a named tuple with other items and the same attributes."""
    return _copy_attributes(node, type(node)._make(values))


def _rebuild_tuple(node: Any, values: list[Any]) -> Any:
    """Return an instance of a tuple subclass with other items and the same attributes; do not run ``__new__`` again."""
    return _copy_attributes(node, tuple.__new__(type(node), values))


def _copy_attributes(node: Any, new: Any) -> Any:
    """Return a new instance of a container after giving it the attributes of another."""
    if hasattr(node, "__dict__"):
        vars(new).update(vars(node))
    return new


def _rebuild_deque(node: deque[Any], values: list[Any]) -> deque[Any]:
    """Return a deque of the same subclass, length limit and attributes; do not run its own ``__init__`` again."""
    new = type(node).__new__(type(node))
    deque.__init__(new, values, node.maxlen)
    return _copy_attributes(node, new)  # type: ignore[no-any-return]


def _rebuild_chain(node: ChainMap[Any, Any], maps: list[Any]) -> ChainMap[Any, Any]:
    """Return a chain of the same subclass and attributes around other maps; do not run its own ``__init__`` again."""
    if type(node) is ChainMap:
        return ChainMap(*maps)
    new = _copy_attributes(node, type(node).__new__(type(node)))
    new.maps = maps
    return new  # type: ignore[no-any-return]


def _refill(node: Any, items: Iterable[tuple[Any, Any]]) -> Any:
    """Return a shallow copy of a dict or list with other items, of the same subclass, order and attributes."""
    new = _empty_copy(node) if isinstance(node, (Counter, defaultdict)) else copy.copy(node)
    for key, value in items:
        new[key] = value
    return new


def _empty_copy(node: Any) -> Any:
    """Return a copy without items of a dict that Python copies by calling ``__init__``, which loses its attributes."""
    cls: Any = type(node)
    if getattr(cls, "__copy__", None) not in (None, defaultdict.__copy__):
        return copy.copy(node)
    new = cls.__new__(cls)
    if isinstance(node, defaultdict):
        new.default_factory = node.default_factory
    return _copy_attributes(node, new)


def _replace_attributes(node: Any, names: list[str], values: list[Any]) -> Any:
    """Return a shallow copy of an instance with attributes set, frozen or not; do not run ``__init__`` again."""
    try:
        new = copy.copy(node)
    except AttributeError:  # frozen, with explicit __slots__: copy.copy sets attributes and fails
        new = object.__new__(type(node))
        reduced: Any = object.__reduce_ex__(node, 2)
        for state in reduced[2]:  # the instance's dict and its slots
            for name, value in (state or {}).items():
                object.__setattr__(new, name, value)
    for name, value in zip(names, values, strict=True):
        if getattr(new, name) is not value:
            object.__setattr__(new, name, value)
    return new


# ---------------------------------------------------------------------- mappings of other classes
def _of_mapping(node: Any) -> Flat | None:
    """Flatten a mapping that is not a dict, such as a `UserDict` or a read-only view."""
    if not isinstance(node, Mapping):
        return None
    keys = list(node)
    values = [node[key] for key in keys]
    return keys, values, lambda new: _rebuild_mapping(node, dict(zip(keys, values, strict=True)), new)


def _rebuild_mapping(node: Any, old: dict[Any, Any], values: list[Any]) -> Any:
    """Return a mapping of the same class around other values.

    Raises:
        ArgumentError: The class behaves in a way that devshim does not know.
    """
    items = dict(zip(old, values, strict=True))
    if isinstance(node, MappingProxyType):
        return MappingProxyType(_refill(node.copy(), items.items()))
    try:
        for make in (_copy_mapping, _rebuild_from_dict):
            new = make(node, old, items)
            if type(new) is type(node) and list(new) == list(items) and all(new[key] is items[key] for key in items):
                return new
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        raise _rebuild_error(node) from error
    raise _rebuild_error(node)


def _rebuild_error(node: Any) -> ArgumentError:
    return ArgumentError(
        f"a {type_name(node)} cannot be rebuilt around moved tensors",
        "pass dict(x), or register the class: optree.register_pytree_node(..., namespace='devshim')",
    )


def _copy_mapping(node: Any, old: dict[Any, Any], items: dict[Any, Any]) -> Any:
    """Return a copy of a mutable mapping with other values; None if the copy could write to the original."""
    if not isinstance(node, MutableMapping):
        return None
    new = copy.copy(node)
    if not hasattr(type(node), "__copy__"):
        held = {name: value for name, value in getattr(node, "__dict__", {}).items() if isinstance(value, Mapping)}
        known = {id(value) for mapping in held.values() for value in mapping.values()}
        if any(id(value) not in known for value in old.values()):
            return None  # the values are stored elsewhere, perhaps in a file
        for name, value in held.items():
            object.__setattr__(new, name, copy.copy(value))
    for key, value in items.items():
        new[key] = value
    return new


def _rebuild_from_dict(node: Any, old: dict[Any, Any], items: dict[Any, Any]) -> Any:
    """Return an instance of a mapping's class, built from a dict."""
    return type(node)(items)
