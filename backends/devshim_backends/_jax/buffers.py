"""Functions about the memory of JAX arrays: its element order, a device's default memory, and aliases of an array."""

from __future__ import annotations

from typing import Any

import jax
from jax._src.array import ArrayImpl

from devshim_backends._jax.clients import computes_on_cpu

__all__ = ["alias", "default_memory_sharding", "is_c_ordered"]


def alias(x: Any) -> Any:
    """Return another array over the same memory: an array on a GPU caches the values read from it (0.10)."""
    if type(x) is not ArrayImpl or len(x.sharding.device_set) != 1 or computes_on_cpu(x.sharding._device):
        return x
    return ArrayImpl(x.aval, x.sharding, [x], committed=x._committed)


def default_memory_sharding(native: Any) -> Any:
    """Return a sharding that names a device's default memory explicitly."""
    return jax.sharding.SingleDeviceSharding(native, memory_kind=native.default_memory().kind)


_IS_C_ORDERED: dict[Any, bool] = {}
"""Maps an XLA layout to True if it is in C order."""


def is_c_ordered(x: Any) -> bool:
    """Return True if an array is in C order, as all results of JAX operators are."""
    layout = getattr(x, "_pjrt_layout", None)  # faster than `x.format`; random keys and numbers do not have it
    answer = _IS_C_ORDERED.get(layout)
    if answer is None:
        order = getattr(getattr(x, "format", None), "layout", None)
        answer = _IS_C_ORDERED.setdefault(layout, order is None or order.major_to_minor == tuple(range(x.ndim)))
    return answer
