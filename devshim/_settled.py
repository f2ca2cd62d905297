"""Whether a glance shows that every tensor of a tree is where it shall be: the commonest answer, found fastest.

A training loop places every batch, and most are where they belong.  So a tree is first looked at without noting
paths or how to rebuild it, which is half of what a closer look (`devshim._trees.scan`) costs; whatever is not plain
is left to that.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from typing import TYPE_CHECKING, Any

from devshim import _registry
from devshim.device import CPU
from devshim.errors import DevshimError

if TYPE_CHECKING:
    from devshim.device import Device

_PLAIN = frozenset({dict, list, tuple, OrderedDict, defaultdict})
"""The containers whose children are what Python says they are; in others a registry may see others."""


def settled(tree: Any, target: Device) -> bool:
    """Whether every tensor of a tree is on a device already; False also where only a closer look can tell.

    What is rare takes the closer look: tensors that cannot be located, models, other containers, and a container that
    stands in the tree twice, which may be a cycle.
    """
    if type(tree) not in _PLAIN:
        return False
    tensors, atoms, on_host = _registry.TENSORS, _registry.ATOMS, target is CPU
    seen = {id(tree)}
    stack = [tree]
    while stack:
        node = stack.pop()
        for child in tuple(node if isinstance(node, (list, tuple)) else node.values()):
            cls = type(child)
            backend = tensors.get(cls)
            if backend is not None:
                if on_host and backend.hosted and getattr(child, backend.hosted) is True:
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
