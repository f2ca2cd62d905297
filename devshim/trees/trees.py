"""Trees: move the tensors in nested containers, and rebuild the containers around them.

Requirements of this module:

* A training loop places every batch, and most batches are on the target already. So a plain tree is first checked
  without recording paths or how to rebuild it, which is half the cost (`all_on_target`).
* Nothing is left half-moved: all tensors are found first, then moved, then the containers are rebuilt.
* What is not in a tensor, a model or a container that devshim knows is refused, or reported by a warning.
* The same code serves compiled functions; see `devshim.trees.flatten` and `devshim.registry.tracing`.
"""

from __future__ import annotations

import time
from collections import OrderedDict, defaultdict
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from devshim.devices.device import CPU, Device
from devshim.errors import DevshimError
from devshim.registry import numpy_scalars, registry, tracing
from devshim.transfers import batch, observing
from devshim.trees import not_moved
from devshim.trees.flatten import flatten
from devshim.trees.key_paths import path_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.contract.backend import Backend, Tensor
    from devshim.models.moving import Where
    from devshim.trees.flatten import Flattened

T = TypeVar("T")

_PLAIN = frozenset({dict, list, tuple, OrderedDict, defaultdict})
"""The containers whose children are what Python says they are; a pytree registry may see other ones in other types."""


def place(tree: T, to: Device | Where, copy: bool | None, non_blocking: bool, call: str = "place") -> T:
    """Move every tensor of a tree: `devshim.place` of anything but a single tensor.

    All tensors are found first, then moved together, and then the containers are rebuilt.
    """
    one = to if isinstance(to, Device) else None
    active = observing.ACTIVE
    show = None if active is None else active.explain
    is_quick = one is not None and (copy is None or copy is False) and show is None and tracing.compiler() is None
    if is_quick and all_on_target(tree, one):
        return tree
    where = _constant_device(to) if isinstance(to, Device) else to
    flat = flatten(tree)
    if not flat.containers and flat.compiler is None and numpy_scalars.is_scalar(tree):
        array = numpy_scalars.as_array(tree)
        moved: T = place(array, to, copy, non_blocking, call)
        return tree if moved is array else moved
    not_moved.check(call, flat, one)
    if show is not None and flat.compiler is None:
        show.placement("copy" if copy else "place", flat, where)
    if one is not None:
        targets = [one] * len(flat.tensors)
    else:
        targets = [where(path_text(cell), "", not backend.shape(x)) for _, cell, x, backend in flat.leaves]
    new: dict[int, Any] = {}
    move_models = _prepare_models(flat, where, copy, new) if flat.models else None
    leaves = zip(flat.numbers, flat.tensors, flat.backends, targets, strict=True)
    compiled = flat.compiler is not None
    new.update(batch.place_leaves(leaves, copy, non_blocking, compiled, flat.name))
    if move_models is not None:
        move_models()
    placed: T = flat.rebuild(new)
    return placed


def all_on_target(tree: Any, target: Any) -> bool:
    """Return True if every tensor of a plain tree is on a device already.

    Returns False if that is not so or only the slow path can tell, for which there are few cases: tensors that cannot
    be located, models, other containers, and a container that occurs in the tree twice (perhaps a cycle).
    """
    if type(tree) not in _PLAIN:
        return False
    tensors, atoms, on_host = registry.TENSORS, registry.LEAF_TYPES, target is CPU
    seen = {id(tree)}
    stack = [tree]
    while stack:
        node = stack.pop()
        for child in tuple(node if isinstance(node, (list, tuple)) else node.values()):
            cls = type(child)
            backend = tensors.get(cls)
            if backend is not None:
                if on_host and backend.fast_paths.host_flag and getattr(child, backend.fast_paths.host_flag) is True:
                    continue
                try:
                    if backend.device_of(child) is not target:
                        return False
                except DevshimError:
                    return False
            elif cls in _PLAIN and id(child) not in seen:
                seen.add(id(child))
                stack.append(child)
            elif cls not in atoms:
                return False
    return True


def _constant_device(device: Device) -> Where:
    """Return a function that gives one device for each leaf."""
    return lambda *_: device


def _prepare_models(flat: Flattened, where: Where, copy: bool | None, new: dict[int, Any]) -> Callable[[], None]:
    """Copy the parts of a tree's models and optimizers that move, and return a function that swaps them in.

    Args:
        flat: The tree.
        where: The device of a leaf.
        copy: As for `devshim.place`; True: clones are moved instead.
        new: Receives the clones.
    """
    from devshim.models import moving

    tracing.refuse("place", "place models and optimizers before the compiled function is called")
    begun = time.perf_counter()
    for backend in dict.fromkeys(backend for *_, backend in flat.models) if copy else ():
        its = {number: model for number, _, model, owner in flat.models if owner is backend}
        new.update(zip(its, backend.clones(list(its.values())), strict=True))
    found = [(path_text(cell), new.get(number, model), backend) for number, cell, model, backend in flat.models]
    move = moving.ModelMove(found, where)
    move.prepare(None if copy else copy)

    def commit() -> None:
        active = observing.ACTIVE
        stayed = move.list_staying() if copy and active is not None and active.record is not None else []
        move.commit()
        if stayed:
            from devshim.transfers import observers

            observers.record_clone(stayed, begun)

    return commit


def _identity(x: Tensor) -> Tensor:
    return x


def placement_of(tree: Any) -> tuple[dict[str, Device], dict[str, int]]:
    """Return the device of every tensor of a tree, by path: parameters and buffers of models, state of optimizers.

    The second mapping has the bytes of those tensors that tell them; while a compiler traces the call, it is empty.
    """
    from devshim.contract.blocks import join_path
    from devshim.simulation.removed_gpus import device_even_if_removed

    flat = flatten(tree)
    flat.others.clear()  # nothing moves
    not_moved.check("placement_of", flat)
    found: dict[str, Device] = {}
    sizes: dict[str, int] = {}
    for _, cell, x, backend in flat.leaves:
        parts = None if flat.compiler is not None else backend.shards(x)
        if parts is None:
            leaves = {path_text(cell): x}
        else:
            leaves = {join_path(path_text(cell), f"shards.{i}"): part for i, part in enumerate(parts)}
        for path, leaf in leaves.items():
            found[path] = device_even_if_removed(backend, partial(_identity, leaf))
            if flat.compiler is None:
                _measure(sizes, path, backend, partial(_identity, leaf))
    for _, cell, obj, backend in flat.models:
        prefix = path_text(cell)
        tracing.refuse_where_read("placement_of", "call it for models outside the compiled function")
        for part in backend.leaves(obj):
            if part.kind != "gradient":
                path = join_path(prefix, part.path)
                found[path] = device_even_if_removed(backend, part.read)
                _measure(sizes, path, backend, part.read)
    return found, sizes


def _measure(sizes: dict[str, int], path: str, backend: Backend, read: Callable[[], Tensor]) -> None:
    """Store the bytes of a tensor, unless its framework refuses to tell, as for one on a GPU that was removed."""
    with suppress(DevshimError):
        sizes[path] = backend.nbytes(read())
