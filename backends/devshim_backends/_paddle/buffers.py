"""Host memory of a tensor or a capsule as a NumPy array, without a copy.

NumPy reads an object's attribute ``__array_interface__``, which gives an address, a shape, strides and a dtype.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


class HostMemory:
    """Writable host memory in NumPy's array interface, version 3; it keeps its owner alive.

    Args:
        owner: The object that owns the memory.
        address: The address of the first element.
        shape: The shape of the array.
        strides: The strides in bytes; None for C order.
        dtype: NumPy's dtype.
    """

    __slots__ = ("__array_interface__", "_owner")

    def __init__(
        self, owner: object, address: int, shape: tuple[int, ...], strides: tuple[int, ...] | None, dtype: np.dtype
    ) -> None:
        self._owner = owner
        self.__array_interface__ = {
            "shape": shape,
            "typestr": dtype.str,
            "data": (address, False),
            "strides": strides,
            "version": 3,
        }
