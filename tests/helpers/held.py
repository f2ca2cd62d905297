"""The leaves of a model or an optimizer, as its adapter reports them."""

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
    """Return the devices of the leaves, including gradients."""
    return {ds.device_of(leaf.read()) for whole in wholes for leaf in leaves(whole).values()}
