"""The memory of JAX arrays: addresses, the order of the elements, aliases of an array, and a device's default memory.

JAX caches an array's parts when it is first asked for them or for their address, but without a lock. If two threads ask
at the same time, it caches the parts twice, and afterwards reports that the array is sharded (JAX 0.10.2). So devshim
asks with a lock held, and for an array that other code has damaged in this way, it asks for the first part.
"""

from __future__ import annotations

from _thread import allocate_lock
from typing import Any

import jax
from jax._src.array import ArrayImpl

from devshim_backends._jax.internals.clients import computes_on_cpu, is_on_one_device

__all__ = ["JaxError", "address_of", "addresses_of", "alias", "default_memory_sharding", "is_c_ordered"]

JaxError: type[Exception] = jax.errors.JaxRuntimeError
"""The error that JAX raises when a device is full."""

_LOCK = allocate_lock()


def address_of(x: Any) -> int:
    """Return the address of the values of an array on a single device."""
    with _LOCK:
        return _pointer(x)


def addresses_of(x: Any) -> dict[Any, int]:
    """Return the addresses of an array's parts by JAX device; the address is 0 for a part without elements."""
    with _LOCK:
        if is_on_one_device(x):
            return dict.fromkeys(x.sharding.device_set, _pointer(x) if x.size else 0)
        parts = [(shard.device, shard.data) for shard in x.addressable_shards]
        return {native: _pointer(part) if part.size else 0 for native, part in parts}


def _pointer(x: Any) -> int:
    try:
        return x.unsafe_buffer_pointer()  # type: ignore[no-any-return]  # JAX is Any
    except JaxError:
        if not is_on_one_device(x) or len(x._arrays) < 2:
            raise
        return x._arrays[0].unsafe_buffer_pointer()  # type: ignore[no-any-return]


def alias(x: Any) -> Any:
    """Return another array over the same memory: an array on a GPU caches the values read from it (0.10)."""
    if type(x) is not ArrayImpl or not is_on_one_device(x) or computes_on_cpu(next(iter(x.sharding.device_set))):
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
