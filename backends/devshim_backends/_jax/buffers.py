"""The memory of an array: its order, which of a device's memories it is, and another array over it."""

from __future__ import annotations

from typing import Any

import jax
from jax._src.array import ArrayImpl

__all__ = ["alias", "in_order", "own_memory"]


def alias(x: Any) -> Any:
    """The same memory as another array: an array of a card keeps, as long as it lives, what was read of it (0.10)."""
    if type(x) is not ArrayImpl or len(x.sharding.device_set) != 1 or x.sharding._device.platform == "cpu":
        return x
    return ArrayImpl(x.aval, x.sharding, [x], committed=x._committed)


def own_memory(native: Any) -> Any:
    """The sharding of a device's own memory, said explicitly."""
    return jax.sharding.SingleDeviceSharding(native, memory_kind=native.default_memory().kind)


_ORDERS: dict[Any, bool] = {}
"""A layout of XLA's -> whether it is C order."""


def in_order(x: Any) -> bool:
    """Return True if an array is in C order, as all results of JAX's operators are."""
    layout = getattr(x, "_pjrt_layout", None)  # faster than `x.format`; keys and numbers have none
    known = _ORDERS.get(layout)
    if known is None:
        found = getattr(getattr(x, "format", None), "layout", None)
        known = _ORDERS.setdefault(layout, found is None or found.major_to_minor == tuple(range(x.ndim)))
    return known
