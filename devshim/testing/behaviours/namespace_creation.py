"""Creation functions of a namespace over the memory of other libraries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import devshim as ds
from devshim.testing.base import Kit
from devshim.testing.values import feature

__all__ = ["NamespaceCreationTests"]


class _Producer:
    """An object that has nothing but the memory of an array."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


class NamespaceCreationTests(Kit):
    """The creation functions of the array API."""

    @feature("namespace")
    @pytest.mark.parametrize("offset", [0, 1, 4, 16])
    @pytest.mark.parametrize("copy", [None, True])
    def test_from_dlpack_copies_what_it_cannot_share(self, device: ds.Device, offset: int, copy: bool | None) -> None:
        """Memory of any address and order is accepted, from a NumPy array or an object that only exports it."""
        memory, values = np.zeros(1024, "uint8"), np.arange(6, dtype="float32").reshape(2, 3)
        start = -memory.ctypes.data % 64 + offset
        flat, xp = memory[start : start + values.nbytes].view("float32"), ds.namespace()
        for array in (flat.reshape(2, 3), flat.reshape(3, 2).T):
            array[...] = values
            for producer in (array, _Producer(array)):
                x, y = xp.from_dlpack(producer, device=device, copy=copy), xp.from_dlpack(producer, copy=copy)
                assert (ds.device_of(x), ds.device_of(y)) == (device, ds.cpu())
                assert self.same_numbers(x, values)
                assert self.same_numbers(y, values)
                assert self.same_numbers(xp.add(xp.sum(y, axis=0), 1), values.sum(0) + 1)
                if copy:
                    array[...] = 7
                    assert self.same_numbers(y, values)
                    array[...] = values
