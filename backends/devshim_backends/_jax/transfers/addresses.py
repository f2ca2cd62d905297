"""The memory addresses of JAX arrays.

JAX caches an array's parts when it is first asked for them or for their address, but without a lock. If two threads ask
at once, it caches the parts twice and from then on says that the array is sharded (JAX 0.10.2). So devshim asks with a
lock held, and for an array that other code has damaged in this way, it asks for the first part.
"""

from __future__ import annotations

from _thread import allocate_lock
from typing import Any

import jax

__all__ = ["JaxError", "address_of", "addresses_of"]

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
        if len(x.sharding.device_set) == 1:
            return dict.fromkeys(x.sharding.device_set, _pointer(x) if x.size else 0)
        parts = [(shard.device, shard.data) for shard in x.addressable_shards]
        return {native: _pointer(part) if part.size else 0 for native, part in parts}


def _pointer(x: Any) -> int:
    try:
        return x.unsafe_buffer_pointer()  # type: ignore[no-any-return]  # JAX is Any
    except JaxError:
        if len(x.sharding.device_set) != 1 or len(x._arrays) < 2:
            raise
        return x._arrays[0].unsafe_buffer_pointer()  # type: ignore[no-any-return]
