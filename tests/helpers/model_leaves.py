"""The leaves of a model or an optimizer, as its adapter reports them."""

from __future__ import annotations

from typing import Any

import devshim as ds
from devshim.registry import registry


def leaves(obj: Any) -> dict[str, Any]:
    """Return every leaf of a model or an optimizer, by its path."""
    owner = registry.backend_of_type(type(obj))
    assert owner is not None
    return {leaf.path: leaf for leaf in owner.leaves(obj)}


def devices(*objects: Any) -> set[ds.Device]:
    """Return the devices of the leaves, including gradients."""
    return {ds.device_of(leaf.read()) for obj in objects for leaf in leaves(obj).values()}
