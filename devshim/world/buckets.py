"""The values of the tensors of a sum on the host, one flat array for each dtype.

New memory is slow at its first use: for 64 MiB, the page faults cost as much as a copy. The next sum therefore reuses
the memory.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from devshim.devices.device import CPU
from devshim.devices.dtypes import numpy_dtype
from devshim.errors import ConversionError, CopyNeededError
from devshim.transfers import alignment, engine

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from devshim.contract.backend import Backend, Tensor

__all__ = ["Buckets", "Source"]

_KEPT = 256 * 2**20
"""The largest bucket, in bytes, that the next sum reuses; larger ones are freed after the sum."""


class Source:
    """A tensor whose values take part in a sum.

    Attributes:
        backend: Its backend.
        x: The tensor.
        kind: The name of its dtype.
        shape: Its shape.
        size: The number of its elements.
        where: The keys that lead to it in its tree, such as ``['a'][0]``.
    """

    __slots__ = ("backend", "kind", "shape", "size", "where", "x")

    def __init__(self, backend: Backend, x: Tensor, where: str) -> None:
        self.backend: Backend = backend
        self.x: Tensor = x
        self.kind: str = backend.dtype_name(x)
        self.shape: tuple[int, ...] = tuple(backend.shape(x))
        self.size: int = prod(self.shape)
        self.where: str = where

    def values(self) -> np.ndarray[Any, Any]:
        """Return the values as an array: over the tensor's memory if it can be, and in new memory otherwise."""
        if self.backend.device_of(self.x) is CPU:
            try:
                return engine.to_host(self.backend, self.x, copy=False)
            except (ConversionError, CopyNeededError):
                pass
        return engine.to_host(self.backend, self.x, copy=True)

    def own_memory(self) -> np.ndarray[Any, Any] | None:
        """Return the tensor's own memory as a flat array, if the sum can be computed in it; None otherwise."""
        if self.backend.device_of(self.x) is not CPU or not self.backend.supports_inplace(self.x):
            return None
        try:
            values = engine.to_host(self.backend, self.x, copy=False)
        except (ConversionError, CopyNeededError):
            return None
        flags = values.flags
        return values.reshape(-1) if flags.c_contiguous and flags.writeable and values.size else None


class Buckets:
    """The memory of one process for its sums, which run one after another."""

    def __init__(self) -> None:
        self._memory: dict[str, np.ndarray[Any, Any]] = {}

    def filled(self, sources: Sequence[Source], kind: str) -> np.ndarray[Any, Any]:
        """Return the concatenated values of the tensors of a dtype, in memory that the next call overwrites."""
        found, parts = self.in_parts(sources, kind)
        for _ in parts:
            pass
        return found

    def in_parts(
        self, sources: Sequence[Source], kind: str, part: int = 0
    ) -> tuple[np.ndarray[Any, Any], Iterator[np.ndarray]]:
        """Return the same memory, and an iterator that fills and returns parts of ``part`` bytes; 0 for one part."""
        here = [source for source in sources if source.kind == kind]
        found = self._empty(sum(source.size for source in here), kind)
        return found, _fill_parts(found, here, part // found.itemsize or max(found.size, 1))

    def with_tail(self, sources: Sequence[Source], kind: str, size: int, tail: int) -> np.ndarray[Any, Any]:
        """Return reused memory with the values of tensors of one dtype, or zeros for none, and a tail of zeros."""
        found = self._empty(size + tail, kind)
        found[0 if not sources else size :] = 0
        for _ in _fill_parts(found[:size], sources, max(size, 1)):
            pass
        return found

    def saved(
        self, values: np.ndarray[Any, Any], kind: str, part: int = 0
    ) -> tuple[np.ndarray[Any, Any], Iterator[np.ndarray]]:
        """Return memory for a copy of an array, and an iterator that returns parts of the array, each copied before."""
        found = self._empty(values.size, kind)
        return found, _copy_parts(values, found, part // found.itemsize or values.size)

    def forget(self) -> None:
        """Release the memory, because an engine that has failed may still write to it."""
        self._memory.clear()

    def _empty(self, size: int, kind: str) -> np.ndarray[Any, Any]:
        dtype = numpy_dtype(kind)
        nbytes = size * dtype.itemsize
        memory = self._memory.get(kind)
        if memory is None or memory.nbytes < nbytes:
            memory = alignment.aligned_bytes(nbytes)
            if nbytes <= _KEPT:
                self._memory[kind] = memory
        return memory[:nbytes].view(dtype)


def _copy_parts(
    values: np.ndarray[Any, Any], found: np.ndarray[Any, Any], length: int
) -> Iterator[np.ndarray[Any, Any]]:
    for start in range(0, values.size, length):
        found[start : start + length] = values[start : start + length]
        yield values[start : start + length]


def _fill_parts(found: np.ndarray[Any, Any], sources: Sequence[Source], length: int) -> Iterator[np.ndarray]:
    filled = given = 0
    for source in sources:
        values = source.values().reshape(-1)
        for start in range(0, source.size, length):
            more = values[start : start + length]
            found[filled : filled + more.size] = more
            filled += more.size
            while filled - given >= length:
                yield found[given : given + length]
                given += length
    if given < filled:
        yield found[given:filled]
