"""The memory addresses of JAX arrays.

JAX remembers an array's parts when it is first asked for them or for their address, and looks for them without a lock:
where two threads ask at once, it remembers them twice, and says from then on that the array is sharded (JAX 0.10.2).
So devshim asks with a lock held, and asks the first part of an array that was spoilt so by others.
"""

from __future__ import annotations

from _thread import allocate_lock
from typing import Any

import jax
from jax._src.lib import xla_client

__all__ = ["JaxError", "address_of", "addresses_of"]

JaxError: type[Exception] = getattr(jax.errors, "JaxRuntimeError", None) or xla_client.XlaRuntimeError
"""The error that JAX raises when a device is full; it had another name before JAX 0.4.35."""

_ASKING = allocate_lock()


def address_of(x: Any) -> int:
    """Return the address of the values of an array that is whole on one device."""
    with _ASKING:
        return _asked(x)


def addresses_of(x: Any) -> dict[Any, int]:
    """Return the addresses of an array's parts by JAX's device; a part without elements is nowhere."""
    with _ASKING:
        if len(x.sharding.device_set) == 1:
            return dict.fromkeys(x.sharding.device_set, _asked(x) if x.size else 0)
        parts = [(shard.device, shard.data) for shard in x.addressable_shards]
        return {native: _asked(part) if part.size else 0 for native, part in parts}


def _asked(x: Any) -> int:
    try:
        return x.unsafe_buffer_pointer()  # type: ignore[no-any-return]  # JAX is Any
    except JaxError:
        if len(x.sharding.device_set) != 1 or len(x._arrays) < 2:
            raise
        return x._arrays[0].unsafe_buffer_pointer()  # type: ignore[no-any-return]
