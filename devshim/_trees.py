"""Trees: finding the tensors in nested containers, and rebuilding the containers around moved ones.

Requirements this module answers:

* dicts, lists, tuples (and their subclasses), named tuples, dataclasses, and whatever is registered as a
  pytree with optree (globally, or in the namespace ``"devshim"``) or with a framework that is loaded.
* Nothing half-moved: all tensors are found first, then moved, then the containers are rebuilt; the tree given is
  never written to.
* The same container object where nothing in it moved; a tensor that stands in two places is moved once.
* Order is kept: a dict's keys stay in the order they were inserted in.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from devshim import _registry, _transfer
from devshim.errors import ArgumentError, DevshimError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from devshim.backend import Backend, Tensor
    from devshim.device import Device

    Path = tuple[object, ...]
    Rebuild = Callable[[list[Any]], Any]

NAMESPACE = "devshim"
"""The optree namespace in which node types may be registered for devshim alone."""

_ATOMS = frozenset({bool, int, float, complex, str, bytes, type(None), type, type(...)})


def children(node: Any) -> tuple[list[object], list[Any], Rebuild] | None:
    """Return a container's keys, its children, and how to rebuild it around others; None for a leaf."""
    cls = type(node)
    if cls in _ATOMS:
        return None
    if isinstance(node, dict):
        return list(node), list(node.values()), lambda new: _refilled(node, zip(node, new, strict=True))
    if isinstance(node, list):
        return list(range(len(node))), list(node), lambda new: _refilled(node, enumerate(new))
    if isinstance(node, tuple):
        fields = getattr(cls, "_fields", None)
        if cls is tuple:
            return list(range(len(node))), list(node), tuple
        if fields is not None and hasattr(cls, "_make"):
            return list(fields), list(node), cls._make
    if hasattr(cls, "__dataclass_fields__"):
        names = [name for name in cls.__dataclass_fields__ if hasattr(node, name)]
        return list(names), [getattr(node, name) for name in names], lambda new: _replaced(node, names, new)
    return _registered(node)


def _refilled(node: Any, items: Iterable[tuple[Any, Any]]) -> Any:
    """A shallow copy of a dict or list with its items replaced: subclass, order and extras are kept."""
    new = copy.copy(node)
    for key, value in items:
        new[key] = value
    return new


def _replaced(node: Any, names: list[str], values: list[Any]) -> Any:
    """A shallow copy of a dataclass instance with its fields set, frozen or not; ``__init__`` is not run again."""
    new = copy.copy(node)
    for name, value in zip(names, values, strict=True):
        if getattr(new, name) is not value:
            object.__setattr__(new, name, value)
    return new


def _registered(node: Any) -> tuple[list[object], list[Any], Rebuild] | None:
    """A node some registry knows: optree's, or that of a loaded framework."""
    import optree

    try:
        found, metadata, entries, rebuild = optree.tree_flatten_one_level(node, none_is_leaf=True, namespace=NAMESPACE)
    except ValueError:  # optree's word for a leaf
        pass
    else:
        return list(entries), list(found), lambda new: rebuild(metadata, tuple(new))
    for backend in _registry.loaded():
        flat = backend.flatten_once(node)
        if flat is not None:
            return list(range(len(flat[0]))), flat[0], flat[1]
    return None


def leaves(tree: Any) -> Iterator[tuple[Path, Any]]:
    """Yield every leaf with its path, in order.

    Raises:
        ArgumentError: The tree contains itself.
    """
    return _walk(tree, (), [])


def _walk(node: Any, path: Path, above: list[int]) -> Iterator[tuple[Path, Any]]:
    if type(node) in _ATOMS or _registry.serving(node) is not None:
        yield path, node
        return
    flat = children(node)
    if flat is None:
        yield path, node
        return
    if id(node) in above:
        raise ArgumentError("the tree contains itself", "break the cycle: a tree of tensors is finite")
    above.append(id(node))
    for key, child in zip(flat[0], flat[1], strict=True):
        yield from _walk(child, (*path, key), above)
    above.pop()


def tensors(tree: Any, call: str) -> Iterator[tuple[Path, Tensor, Backend]]:
    """Yield every tensor of a tree with its path and its backend; other leaves are passed over.

    Raises:
        UnsupportedError: A leaf is a model or optimizer, which ``call`` cannot treat yet.
    """
    for path, leaf in leaves(tree):
        if type(leaf) in _ATOMS:
            continue
        backend = _registry.serving(leaf)
        if backend is not None:
            yield path, leaf, backend
        else:
            _refuse_model(leaf)


def _refuse_model(leaf: Any) -> None:
    owner = _registry.owner(type(leaf))
    if owner is not None and owner.is_model(type(leaf)):
        from devshim import _refusals

        raise _refusals.unsupported(owner, "models")


def place(tree: Any, target: Device, copy: bool | None, non_blocking: bool) -> Any:
    """Move every tensor of a tree: `devshim.place` for everything that is not itself a tensor."""
    from devshim.tensors import _settled

    moving: dict[int, tuple[Backend, Tensor, Path]] = {}
    for path, x, backend in tensors(tree, "place"):
        stays = backend.device_of(x) is target if copy is None else _settled(backend, x, target, copy)
        if not stays:
            moving.setdefault(id(x), (backend, x, path))
    if not moving:
        return tree
    moved = _move(moving, target, non_blocking)
    return _rebuilt(tree, moved)


def _move(moving: dict[int, tuple[Backend, Tensor, Path]], target: Device, non_blocking: bool) -> dict[int, Tensor]:
    """Move all tensors found, in one call per backend where its framework has a faster way for many."""
    from devshim.backend import Backend as Contract

    by_backend: dict[int, list[tuple[int, Tensor, Path]]] = {}
    backends: dict[int, Backend] = {}
    for key, (backend, x, path) in moving.items():
        backends[id(backend)] = backend
        by_backend.setdefault(id(backend), []).append((key, x, path))
    for backend in backends.values():  # a device one of them lacks is refused before anything is copied
        _transfer.require(backend, target)
    moved: dict[int, Tensor] = {}
    for which, group in by_backend.items():
        backend = backends[which]
        if type(backend).copy_many is not Contract.copy_many:
            results = _transfer.move_many(backend, [x for _, x, _ in group], target, non_blocking)
            moved.update(zip([key for key, _, _ in group], results, strict=True))
            continue
        for key, x, path in group:
            try:
                moved[key] = _transfer.move(backend, x, target, non_blocking)
            except DevshimError as error:
                error.add_leaf("".join(f"[{part!r}]" for part in path))
                raise
    return moved


def _rebuilt(node: Any, moved: dict[int, Tensor]) -> Any:
    if type(node) in _ATOMS:
        return node
    if id(node) in moved:
        return moved[id(node)]
    if _registry.serving(node) is not None:
        return node
    flat = children(node)
    if flat is None:
        return node
    _, old, rebuild = flat
    new = [_rebuilt(child, moved) for child in old]
    return node if all(a is b for a, b in zip(old, new, strict=True)) else rebuild(new)
