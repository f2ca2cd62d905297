"""Trees: find the tensors in nested containers, and rebuild the containers around the moved ones.

Requirements this module answers:

* Containers are those of `devshim.trees.containers`.
* Nothing is left half-moved: all tensors are found first, then moved, then the containers are rebuilt. The given tree
  is never changed.
* A container in which nothing moved stays the same object. A tensor or container that occurs in two places is moved
  once, and occurs in both again.
* Order is kept: a dict's keys stay in their insertion order.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from devshim.contract import capabilities
from devshim.devices.device import Device
from devshim.errors import ArgumentError
from devshim.registry import registry
from devshim.transfers import batch, decisions, observing
from devshim.trees import not_moved
from devshim.trees.containers import children
from devshim.trees.fast_check import all_on_target, moving
from devshim.trees.key_paths import brackets, key_path, path_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devshim.contract.backend import Backend, Tensor
    from devshim.models.moving import Where
    from devshim.trees.containers import Flat
    from devshim.trees.key_paths import Cell, Path


T = TypeVar("T")

OUTSIDE = "place models and optimizers before the compiled function is called"


def iter_leaves(
    tree: Any,
    done: list[tuple[Any, Flat]] | None = None,
    objects: list[tuple[Cell, Any, Backend]] | None = None,
    others: list[tuple[Cell, Any]] | None = None,
) -> Iterator[tuple[Cell, Tensor, Backend]]:
    """Yield every tensor of a tree with its cell and its backend; skip other leaves.

    Args:
        tree: Anything.
        done: Receives every container with its children, each after the containers in it.
        objects: Receives the models and optimizers with their cells; without it, the tensors in them are yielded.
        others: Receives all other objects with their cells, except numbers, text and None.

    Raises:
        ArgumentError: The tree contains itself.
        UnsupportedError: A leaf is a model or optimizer, and its backend declares that it cannot move those.

    A container that occurs in several places is visited once. Depth is unlimited, because no recursion is used.
    """
    above: set[int] = set()
    seen: dict[int, Any] = {}  # keeps the objects alive, so that no id is reused
    stack: list[tuple[Any, Flat, Cell | None, Iterator[tuple[object, Any]]]] = []
    stack.append((None, ([], [], list), None, iter([(None, tree)])))
    while stack:
        node, flat, cell, items = stack[-1]
        for key, child in items:
            if type(child) in registry.LEAF_TYPES:
                continue
            backend = registry.backend_for(child)
            if backend is not None:
                yield (cell, key), child, backend
            elif id(child) in above:
                raise ArgumentError("the tree contains itself", "break the cycle: a tree of tensors is finite")
            elif id(child) not in seen:
                seen[id(child)] = child
                owner = model_backend(child)
                if owner is not None:
                    if objects is None:
                        for leaf in owner.leaves(child):
                            yield ((cell, key), leaf.path), leaf.read(), owner
                    else:
                        objects.append(((cell, key), child, owner))
                    continue
                below = children(child)
                if below is not None:
                    above.add(id(child))
                    stack.append((child, below, (cell, key), zip(below[0], below[1], strict=True)))
                    break
                if others is not None:
                    others.append(((cell, key), child))
        else:
            stack.pop()
            above.discard(id(node))
            if done is not None and stack:
                done.append((node, flat))


def model_backend(node: Any) -> Backend | None:
    """Return the backend of a model or optimizer, or None for anything else."""
    if isinstance(node, (dict, list, tuple)):
        return None
    owner = registry.backend_of_type(type(node))
    if owner is None or not owner.is_model(type(node)):
        return None
    if "models" in owner.gaps:
        raise capabilities.unsupported(owner, "models")
    return owner


def tensors(tree: Any) -> Iterator[tuple[Path, Tensor, Backend]]:
    """Yield every tensor of a tree with its path and its backend, like `iter_leaves`."""
    for cell, x, backend in iter_leaves(tree):
        yield key_path(cell), x, backend


def place_eager(tree: T, to: Device | Where, copy: bool | None, non_blocking: bool, call: str = "place") -> T:
    """Move every tensor of a tree, outside compiled functions: `devshim.place` of anything but a single tensor."""
    plain = None
    if isinstance(to, Device):
        there = all_on_target(tree, to) if copy is None or copy is False else False
        if there:
            return tree
        plain = None if there is None else moving(tree, to, copy)
    if plain is not None:
        return _place_plain(tree, plain, to, non_blocking)
    done: list[tuple[Any, Flat]] = []
    objects: list[tuple[Cell, Any, Backend]] = []
    others: list[tuple[Cell, Any]] = []
    going = batch.TransferBatch(brackets)
    one: Device | None = to if isinstance(to, Device) else None
    where = everywhere(to)
    x = None
    for cell, x, backend in iter_leaves(tree, done, objects, others):
        target = one or where(path_text(cell), "", not backend.shape(x))
        if not decisions.stays(backend, x, target, copy):
            going.add(id(x), backend, x, target, cell)
    if others or (x is None and not done):
        look_at_others(call, tree, bool(done or objects or x is not None), others, one)
    new: dict[int, Any] = {}
    with _moved_with(objects, where, copy) as clones:
        new.update(clones)
        new.update(going.copy(non_blocking))
    return rebuild(tree, done, new)


def _place_plain(tree: T, plain: Any, to: Any, non_blocking: bool) -> T:
    """Move the tensors of a plain tree (`devshim.trees.fast_check.moving`), and rebuild it."""
    nodes, found = plain
    going = batch.TransferBatch(partial(_brackets_of, tree))
    for backend, xs in found.items():
        going.add_all(backend, xs, to)
    new = going.copy(non_blocking)
    done = [(node, flat) for node in reversed(nodes) if (flat := children(node)) is not None]
    return rebuild(tree, done, new)


def _brackets_of(tree: Any, x: Tensor) -> str:
    """Return the keys that lead to a tensor of a tree, as Python writes them."""
    return next((brackets(cell) for cell, each, _ in iter_leaves(tree) if each is x), "")


def everywhere(to: Device | Where) -> Where:
    """Return a function that gives the device of each leaf, even if all go to one device."""
    return (lambda *_: to) if isinstance(to, Device) else to


def look_at_others(
    call: str, tree: Any, is_tree: bool, others: list[tuple[Cell, Any]], device: Device | None = None
) -> None:
    """Refuse an object that is not a tensor, model or container; warn about such objects in a tree.

    None is an empty tree, so that optional values can be placed as they are.

    Raises:
        NotATensorError: The object is all that was given.
    """
    if is_tree or tree is None:
        if others:
            not_moved.warn(call, others)
        return
    raise not_moved.refuse(call, tree, device)


def rebuild(tree: T, done: list[tuple[Any, Flat]], new: dict[int, Any]) -> T:
    """Return the tree with the new objects in it; the same object if it contains none of them."""
    for node, (_, old, rebuild) in done if new else ():
        for child in old:  # a plain loop, no `is`: torch.compile traces a generator only once and cannot compare tuples
            if id(child) in new:
                new[id(node)] = rebuild([new.get(id(each), each) for each in old])
                break
    found: T = new.get(id(tree), tree)
    return found


@contextmanager
def _moved_with(objects: list[tuple[Cell, Any, Backend]], where: Where, copy: bool | None) -> Iterator[dict[int, Any]]:
    """Move the models and optimizers of a tree, or clones of them, together with what the block moves: all or none."""
    clones: dict[int, Any] = {}
    if not objects:
        yield clones
        return
    from devshim.models import moving
    from devshim.registry import tracing

    tracing.refuse("place", OUTSIDE)
    begun = time.perf_counter()
    if copy:
        for backend in dict.fromkeys(backend for _, _, backend in objects):
            its = [obj for _, obj, owner in objects if owner is backend]
            clones.update(zip(map(id, its), backend.clones(its), strict=True))
    found = [(path_text(cell), clones.get(id(each), each), backend) for cell, each, backend in objects]
    move = moving.ModelMove(found, where)
    move.prepare(None if copy else copy)
    yield clones
    active = observing.ACTIVE
    stayed = move.staying() if copy and active is not None and active.record is not None else []
    move.commit()
    if stayed:
        from devshim.transfers import observers

        observers.cloned(stayed, begun)


def _itself(x: Tensor) -> Tensor:
    return x


def placement_of(tree: Any) -> dict[str, Device]:
    """Return the device of every tensor of a tree, by path: parameters and buffers of models, state of optimizers."""
    from devshim.models.moving import joined
    from devshim.registry import tracing
    from devshim.simulation.removed_gpus import device_even_if_removed

    done: list[Any] = []
    objects: list[tuple[Cell, Any, Backend]] = []
    found: dict[str, Device] = {}
    for cell, x, backend in iter_leaves(tree, done, objects):
        found[path_text(cell)] = device_even_if_removed(backend, partial(_itself, x))
    look_at_others("placement_of", tree, bool(done or objects or found), [])
    for cell, obj, backend in objects:
        prefix = path_text(cell)
        tracing.refuse_where_read("placement_of", "ask of models outside the compiled function")
        for leaf in backend.leaves(obj):
            if leaf.kind != "gradient":
                found[joined(prefix, leaf.path)] = device_even_if_removed(backend, leaf.read)
    return found
