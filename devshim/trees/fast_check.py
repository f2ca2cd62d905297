"""Fast paths for plain trees: are all tensors on the target already, and if not, which of them move?

A training loop places every batch, and most batches are on the target already. So a tree is first checked without
recording paths or how to rebuild it, which is half the cost of the slow path (`iter_leaves`). Trees that are not plain
are left to the slow path. If tensors move, they are found one container at a time, and a leaf's name is
determined only if its copy fails.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from typing import TYPE_CHECKING, Any

from devshim.devices.device import CPU
from devshim.errors import DevshimError
from devshim.registry import registry
from devshim.transfers.engine import are_hosted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devshim.contract.backend import Backend, Tensor
    from devshim.devices.device import Device

_PLAIN = frozenset({dict, list, tuple, OrderedDict, defaultdict})
"""The containers whose children are what Python says they are; a pytree registry may see other ones in other types."""
_REBUILT = frozenset({dict, list, tuple})
"""Those of the plain containers that are rebuilt from their children alone."""


def all_on_target(tree: Any, target: Device) -> bool | None:
    """Return True if every tensor of a tree is on a device already, False at the first that is not.

    Returns None if only the slow path can tell; then `moving` cannot tell, either. This happens in rare cases: tensors
    that cannot be located, models, other containers, and a container that occurs in the tree twice (perhaps a cycle).
    """
    if type(tree) not in _PLAIN:
        return None
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
                    return None
            elif cls in _PLAIN and id(child) not in seen:
                seen.add(id(child))
                stack.append(child)
            elif cls not in atoms:
                return None
    return True


def moving(tree: Any, target: Device, copy: bool | None) -> tuple[list[Any], dict[Backend, dict[int, Tensor]]] | None:
    """Return the containers and the moving tensors of a plain tree, in one pass; None if only the slow path can tell.

    Args:
        tree: Anything.
        target: The device that the tensors go to.
        copy: None: a tensor that is on the target stays. True: every tensor is copied.

    Returns:
        The containers, each before those in it, and for each framework the tensors that move, by id.
    """
    if type(tree) not in _REBUILT or (copy is not None and copy is not True):
        return None
    nodes, seen = [tree], {id(tree)}
    found: dict[Backend, dict[int, Tensor]] = {}
    for node in nodes:  # the list grows during the loop
        children = tuple(node.values() if type(node) is dict else node)
        classes = dict.fromkeys(map(type, children))
        for cls in classes:
            backend = registry.TENSORS.get(cls)
            if backend is not None:
                xs = children if len(classes) == 1 else [child for child in children if type(child) is cls]
                try:
                    going = xs if copy else _elsewhere(backend, xs, target)
                except DevshimError:
                    return None
                found.setdefault(backend, {}).update(zip(map(id, going), going, strict=True))
            elif cls in _REBUILT:
                for child in children:
                    if type(child) is cls:
                        if id(child) in seen:  # it occurs in the tree twice
                            return None
                        seen.add(id(child))
                        nodes.append(child)
            elif cls not in registry.LEAF_TYPES:
                return None
    return nodes, found


def _elsewhere(backend: Backend, xs: Sequence[Tensor], target: Device) -> Sequence[Tensor]:
    """Return those tensors that are not on a device."""
    if target is not CPU and are_hosted(backend, xs):
        return xs
    device_of = backend.device_of
    return [x for x in xs if device_of(x) is not target]
