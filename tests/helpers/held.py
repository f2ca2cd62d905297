"""What a model or an optimizer holds, as its adapter tells it."""

from __future__ import annotations

from typing import Any

import devshim as ds
from devshim.registry import registry


def leaves(whole: Any) -> dict[str, Any]:
    """Return every leaf of a model or an optimizer, by its path."""
    owner = registry.owner(type(whole))
    assert owner is not None
    return {leaf.path: leaf for leaf in owner.leaves(whole)}


def devices(*wholes: Any) -> set[ds.Device]:
    """Return where the leaves are, gradients among them."""
    return {ds.device_of(leaf.read()) for whole in wholes for leaf in leaves(whole).values()}
