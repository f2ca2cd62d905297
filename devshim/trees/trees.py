"""Trees: finding the tensors in nested containers, and rebuilding the containers around moved ones.

Requirements this module answers:

* Containers are those of `devshim.trees.containers`.
* Nothing half-moved: all tensors are found first, then moved, then the containers are rebuilt; the tree given is
  never written to.
* The same container object where nothing in it moved; a tensor or container that stands in two places is
  moved once, and stands in both again.
* Order is kept: a dict's keys stay in the order they were inserted in.
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
from devshim.transfers import batch, decisions, engine
from devshim.trees import not_moved
from devshim.trees.containers import children
from devshim.trees.fast_check import moving, settled
from devshim.trees.key_paths import brackets, path_of, path_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devshim.contract.backend import Backend, Tensor
    from devshim.models.moving import Where
    from devshim.trees.containers import Flat
    from devshim.trees.key_paths import Cell, Path


T = TypeVar("T")

OUTSIDE = "place models and optimizers before the compiled function is called"


def scan(
    tree: Any,
    done: list[tuple[Any, Flat]] | None = None,
    wholes: list[tuple[Cell, Any, Backend]] | None = None,
    others: list[tuple[Cell, Any]] | None = None,
) -> Iterator[tuple[Cell, Tensor, Backend]]:
    """Yield every tensor of a tree with where it stands and its backend; other leaves are passed over.

    Args:
        tree: Anything.
        done: Takes every container with its children, each after the containers in it.
        wholes: Takes the models and optimizers, with where they stand; without it the tensors in them are yielded.
        others: Takes the objects that are none of these, with where they stand; numbers, text and None are left out.

    Raises:
        ArgumentError: The tree contains itself.
        UnsupportedError: A leaf is a model or optimizer, and its backend declares that it cannot move those.

    A container that stands in several places is looked into once.  No recursion: depth is no limit.
    """
    above: set[int] = set()
    seen: dict[int, Any] = {}  # holds what it names, so that no number is used twice
    stack: list[tuple[Any, Flat, Cell | None, Iterator[tuple[object, Any]]]] = []
    stack.append((None, ([], [], list), None, iter([(None, tree)])))
    while stack:
        node, flat, cell, items = stack[-1]
        for key, child in items:
            if type(child) in registry.ATOMS:
                continue
            backend = registry.serving(child)
            if backend is not None:
                yield (cell, key), child, backend
            elif id(child) in above:
                raise ArgumentError("the tree contains itself", "break the cycle: a tree of tensors is finite")
            elif id(child) not in seen:
                seen[id(child)] = child
                owner = owner_of_whole(child)
                if owner is not None:
                    if wholes is None:
                        for leaf in owner.leaves(child):
                            yield ((cell, key), leaf.path), leaf.read(), owner
                    else:
                        wholes.append(((cell, key), child, owner))
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


def owner_of_whole(node: Any) -> Backend | None:
    """The backend of a model or optimizer, or None for anything else."""
    if isinstance(node, (dict, list, tuple)):
        return None
    owner = registry.owner(type(node))
    if owner is None or not owner.is_model(type(node)):
        return None
    if "models" in owner.gaps:
        raise capabilities.unsupported(owner, "models")
    return owner


def tensors(tree: Any) -> Iterator[tuple[Path, Tensor, Backend]]:
    """Yield every tensor of a tree with its path and its backend: `scan` for those who name the tensors."""
    for cell, x, backend in scan(tree):
        yield path_of(cell), x, backend


def placed(tree: T, to: Device | Where, copy: bool | None, non_blocking: bool, call: str = "place") -> T:
    """Move every tensor of a tree where no compiler reads along: `devshim.place` for what is not itself a tensor."""
    plain = None
    if isinstance(to, Device):
        there = settled(tree, to) if copy is None or copy is False else False
        if there:
            return tree
        plain = None if there is None else moving(tree, to, copy)
    if plain is not None:
        return _placed_plain(tree, plain, to, non_blocking)
    done: list[tuple[Any, Flat]] = []
    wholes: list[tuple[Cell, Any, Backend]] = []
    others: list[tuple[Cell, Any]] = []
    going = batch.Going(brackets)
    one: Device | None = to if isinstance(to, Device) else None
    where = everywhere(to)
    x = None
    for cell, x, backend in scan(tree, done, wholes, others):
        target = one or where(path_text(cell), "", not backend.shape(x))
        if not decisions.stays(backend, x, target, copy):
            going.add(id(x), backend, x, target, cell)
    if others or (x is None and not done):
        look_at_others(call, tree, bool(done or wholes or x is not None), others, one)
    new: dict[int, Any] = {}
    with _moved_with(wholes, where, copy) as clones:
        new.update(clones)
        new.update(going.copy(non_blocking))
    return rebuilt(tree, done, new)


def _placed_plain(tree: T, plain: Any, to: Any, non_blocking: bool) -> T:
    """Move the tensors of a plain tree (`devshim.trees.fast_check.moving`), and rebuild it."""
    nodes, found = plain
    going = batch.Going(partial(_brackets_of, tree))
    for backend, xs in found.items():
        going.add_all(backend, xs, to)
    new = going.copy(non_blocking)
    done = [(node, flat) for node in reversed(nodes) if (flat := children(node)) is not None]
    return rebuilt(tree, done, new)


def _brackets_of(tree: Any, x: Tensor) -> str:
    """Return the keys that lead to a tensor of a tree, as Python writes them."""
    return next((brackets(cell) for cell, each, _ in scan(tree) if each is x), "")


def everywhere(to: Device | Where) -> Where:
    """Return where each leaf goes, as a function, also where all go to one device."""
    return (lambda *_: to) if isinstance(to, Device) else to


def look_at_others(
    call: str, tree: Any, is_tree: bool, others: list[tuple[Cell, Any]], device: Device | None = None
) -> None:
    """Refuse what is neither tensor, model nor container, and warn of what a tree holds of that kind.

    None is an empty tree: what is optional can be placed as it is.

    Raises:
        NotATensorError: It is all that was given.
    """
    if is_tree or tree is None:
        if others:
            not_moved.warn(call, others)
        return
    raise not_moved.refuse(call, tree, device)


def rebuilt(tree: T, done: list[tuple[Any, Flat]], new: dict[int, Any]) -> T:
    """The tree with what is new in its place; the same object where nothing in it is."""
    for node, (_, old, rebuild) in done if new else ():
        for child in old:  # a plain loop, and no `is`: torch.compile traces no generator twice, and compares no tuples
            if id(child) in new:
                new[id(node)] = rebuild([new.get(id(each), each) for each in old])
                break
    found: T = new.get(id(tree), tree)
    return found


@contextmanager
def _moved_with(wholes: list[tuple[Cell, Any, Backend]], where: Where, copy: bool | None) -> Iterator[dict[int, Any]]:
    """Move the models and optimizers of a tree, or clones of them, with what the block moves: all or nothing."""
    clones: dict[int, Any] = {}
    if not wholes:
        yield clones
        return
    from devshim.models import moving
    from devshim.registry import tracing

    tracing.refuse("place", OUTSIDE)
    begun = time.perf_counter()
    if copy:
        for backend in dict.fromkeys(backend for _, _, backend in wholes):
            its = [whole for _, whole, owner in wholes if owner is backend]
            clones.update(zip(map(id, its), backend.clones(its), strict=True))
    found = [(path_text(cell), clones.get(id(each), each), backend) for cell, each, backend in wholes]
    move = moving.Move(found, where)
    move.stage(None if copy else copy)
    yield clones
    stayed = move.staying() if copy and engine.LEDGER is not None else []
    move.exchange()
    if stayed:
        from devshim.transfers import observers

        observers.cloned(stayed, begun)


def _itself(x: Tensor) -> Tensor:
    return x


def placement_of(tree: Any) -> dict[str, Device]:
    """Return where every tensor of a tree is: parameters and buffers of models, state of optimizers, by their paths."""
    from devshim.models.moving import joined
    from devshim.registry import tracing
    from devshim.simulation.removed_gpus import located

    done: list[Any] = []
    wholes: list[tuple[Cell, Any, Backend]] = []
    found: dict[str, Device] = {}
    for cell, x, backend in scan(tree, done, wholes):
        found[path_text(cell)] = located(backend, partial(_itself, x))
    look_at_others("placement_of", tree, bool(done or wholes or found), [])
    for cell, whole, backend in wholes:
        prefix = path_text(cell)
        tracing.refuse_where_read("placement_of", "ask of models outside the compiled function")
        for leaf in backend.leaves(whole):
            if leaf.kind != "gradient":
                found[joined(prefix, leaf.path)] = located(backend, leaf.read)
    return found
