"""The record of the arrays on JAX's simulated GPUs that are counted, and of the buffers that they use."""

from __future__ import annotations

from _thread import allocate_lock
from collections import deque
from typing import TYPE_CHECKING, Any
from weakref import ref

import jax
from jax._src.array import ArrayImpl

if TYPE_CHECKING:
    from devshim.simulation.memory import SimulatedDevice

__all__ = ["ARRAYS", "LOCK", "Buffer", "CountedArray", "add", "drop", "drop_dead", "find_counted", "underlying_array"]


class Buffer:
    """Memory on one simulated GPU, counted there while an array refers to it.

    Args:
        native: JAX's device.
        gpu: The simulated GPU.
        nbytes: The size in bytes.
        there: As for `SimulatedDevice.track`, which raises the same errors.
    """

    __slots__ = ("__weakref__", "gpu", "native")

    def __init__(self, native: Any, gpu: SimulatedDevice, nbytes: int, there: bool = False) -> None:
        self.native, self.gpu = native, gpu
        gpu.track(self, nbytes, exists=there)


class CountedArray(ref):  # type: ignore[type-arg]  # generic for the type checker only
    """A weak reference to an array, with the array's buffers."""

    __slots__ = ("buffers", "key")

    buffers: list[Buffer]
    key: int


LOCK = allocate_lock()
ARRAYS: dict[int, CountedArray] = {}
"""Maps the address of an array to its entry. By now another array may have the address: see `find_counted`."""
_dropped: deque[CountedArray] = deque()
"""Entries of arrays that are gone. The garbage collector adds them without a lock; `drop_dead` removes them."""


def underlying_array(x: Any) -> Any | None:
    """Return the array that has a value's memory, or None if the value has no own memory."""
    if type(x) is ArrayImpl:
        return x
    array = getattr(x, "_base_array", x)  # random keys wrap an array
    return array if isinstance(array, jax.Array) and hasattr(array, "unsafe_buffer_pointer") else None


def find_counted(x: Any) -> CountedArray | None:
    """Return the entry of an array, or None; an earlier array may have had the same address."""
    counted = ARRAYS.get(id(x))
    return counted if counted is not None and counted() is x else None


# ---------------------------------------------------------------------- functions to call with the lock held
def add(x: Any, buffers: list[Buffer]) -> None:
    """Record an array with its buffers."""
    counted = CountedArray(x, _dropped.append)
    counted.key, counted.buffers = id(x), buffers
    ARRAYS[counted.key] = counted


def drop_dead() -> None:
    """Drop the entries of arrays that are gone. If an interrupt stops this, the next call continues it."""
    while _dropped:
        drop(_dropped[0])
        _dropped.popleft()


def drop(counted: CountedArray) -> None:
    """Drop an entry; a repeat does no harm."""
    key = getattr(counted, "key", None)  # None if an interrupt came before the key was set
    if key is not None and ARRAYS.get(key) is counted:
        del ARRAYS[key]
