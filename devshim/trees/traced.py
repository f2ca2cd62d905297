"""Trees inside a compiled function: plain recursion, which the frameworks' compilers can follow.

`trees.trees` uses `id`, generators and growing sets to be fast, to name the leaf that fails, and to move each tensor
once. All of these break the graph of torch.compile (2.10 and later). They are not needed while a function is compiled:
nothing is copied before the function runs, and the compiler itself sees which arguments are the same tensor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from devshim.devices import parsing
from devshim.devices.device import Device
from devshim.registry import current, registry, traced_errors, tracing
from devshim.transfers import decisions, engine
from devshim.trees import trees
from devshim.trees.containers import children

if TYPE_CHECKING:
    from devshim.contract.backend import Backend, Tensor
    from devshim.models.moving import Where
    from devshim.trees.containers import Flat

T = TypeVar("T")


def compiling() -> bool:
    """Return True if a loaded framework is compiling or tracing the calling code right now."""
    return compiler() is not None


def compiler() -> Backend | None:
    """Return the framework that is compiling the calling code right now; ask none after the first that is.

    torch.compile, which is asked first, traces the questions themselves, and cannot follow JAX's answer.
    """
    for backend in current.COMPILERS:
        if backend.compiling():
            return backend
    return None


def _children(node: Any) -> Flat | None:
    """Return a container's children; ask only the compiling framework, which can follow its own code."""
    owner = compiler()
    return children(node, [] if owner is None or not owner.has_containers else [owner])


def place(tree: T, to: Device | Where, copy: bool | None, non_blocking: bool) -> T:
    """Move every tensor of a tree when the compiled function runs; return the tree itself if none has to move."""
    if _has_object(tree):
        tracing.refuse("place", trees.OUTSIDE)
        return trees.place_eager(tree, to, copy, non_blocking)
    if tree is not None and registry.backend_for(tree) is None and _children(tree) is None:
        traced_errors.not_a_tensor("place", type(tree).__name__)
    placed: T = _placed(tree, to, copy, non_blocking, "")[0]
    return placed


def _has_object(node: Any) -> bool:
    """Return True if a tree contains a model or optimizer."""
    if type(node) in registry.LEAF_TYPES or registry.backend_for(node) is not None:
        return False
    if not isinstance(node, (dict, list, tuple)) and _is_model_or_optimizer(type(node)):
        return True
    flat = _children(node)
    for child in () if flat is None else flat[1]:  # noqa: SIM110 - a generator would break the graph
        if _has_object(child):
            return True
    return False


@registry.constant_under_compile
def _is_model_or_optimizer(cls: type) -> bool:
    """Return True if instances of a type are models or optimizers."""
    owner = registry.backend_of_type(cls)
    return owner is not None and owner.is_model(cls)


def _placed(node: Any, to: Device | Where, copy: bool | None, non_blocking: bool, path: str) -> tuple[Any, bool]:
    """Return the node with its tensors moved, and True if it is another object: a compiler may not support ``is``."""
    backend = registry.backend_for(node)
    if backend is not None:
        target = to if isinstance(to, Device) else parsing.of_argument(to(path, ""))
        if decisions.stays(backend, node, target, copy):
            return node, False
        return engine.move(backend, node, target, non_blocking), True
    flat = None if type(node) in registry.LEAF_TYPES else _children(node)
    if flat is None:
        return node, False
    keys, children, rebuild = flat
    placed, changed = [], False
    for key, child in zip(keys, children, strict=True):
        new, is_new = _placed(child, to, copy, non_blocking, f"{path}.{key}" if path else str(key))
        placed.append(new)
        changed = changed or is_new
    return (rebuild(placed), True) if changed else (node, False)


def tensors(tree: Any) -> list[tuple[tuple[object, ...], Tensor, Backend]]:
    """Return every tensor of a tree with its path and its backend, as `devshim.trees.trees.tensors` does."""
    found: list[tuple[tuple[object, ...], Tensor, Backend]] = []
    _collect(tree, (), found)
    return found


def _collect(node: Any, path: tuple[object, ...], found: list[Any]) -> None:
    backend = registry.backend_for(node)
    if backend is not None:
        found.append((path, node, backend))
        return
    if type(node) in registry.LEAF_TYPES:
        return
    owner = trees.model_backend(node)
    if owner is not None:
        for leaf in owner.leaves(node):
            found.append(((*path, leaf.path), leaf.read(), owner))
        return
    flat = _children(node)
    if flat is not None:
        for key, child in zip(flat[0], flat[1], strict=True):
            _collect(child, (*path, key), found)
