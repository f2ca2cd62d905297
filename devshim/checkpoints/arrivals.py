"""Bring the tensors of a checkpoint to their devices; small ones are collected, and copied in one call.

A tensor that stays on the host keeps the memory into which it was read. Otherwise the host needs memory for the
collected ones, `MOST` bytes, or for one larger tensor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devshim.devices.device import CPU
from devshim.errors import CheckpointError, CopyNeededError, DevshimError
from devshim.transfers import batch, engine

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeVar

    import numpy as np

    from devshim.checkpoints.file import OpenFile
    from devshim.checkpoints.ranks_read import Folder
    from devshim.checkpoints.stored import Source
    from devshim.contract.backend import Backend, Tensor
    from devshim.devices.device import Device

    K = TypeVar("K")

__all__ = ["Arrivals", "PendingTensor"]

SMALL = 1 << 18
"""Bytes; a larger tensor is copied separately."""
MOST = 1 << 24
"""The most bytes that are collected."""


class PendingTensor:
    """A tensor that is on its device after `Arrivals.flush`."""

    __slots__ = ("backend", "place", "target", "tensor")

    def __init__(self, backend: Backend, target: Device, place: str) -> None:
        self.backend: Backend = backend
        self.target: Device = target
        self.place: str = place
        self.tensor: Tensor = None


class Arrivals:
    """The tensors of one file.

    Args:
        file: The file to read.
    """

    def __init__(self, file: OpenFile | Folder) -> None:
        self._file = file
        self._all: list[PendingTensor] = []
        self._waiting: list[PendingTensor] = []
        self._bytes = 0

    def read(self, backend: Backend, source: Source, target: Device, place: str) -> PendingTensor:
        """Read one tensor.

        Args:
            backend: The framework of the result.
            source: The source of its values.
            target: The device it goes to.
            place: Its name for errors.
        """
        tensor, later = source.tensor, PendingTensor(backend, target, place)
        self._all.append(later)
        try:
            backend.dtype(source.dtype or tensor.dtype)  # refuses a dtype that the framework lacks
            array = source.values(
                lambda each: self._file.read(each.name, each.dtype, each.shape, each.crc32, source.rows)
            )
            if target is CPU or array.nbytes <= SMALL:
                x = _on_host(backend, array)
            else:
                x = engine.make(*engine.from_host(backend, array, target, copy=True))
            later.tensor = _as_key(backend, x, source)
        except DevshimError as error:
            if not isinstance(error, CheckpointError):
                error.add_leaf(place)
            raise
        if target is not CPU and array.nbytes <= SMALL:
            self._waiting.append(later)
            self._bytes += array.nbytes
            if self._bytes > MOST:
                self.flush()
        return later

    def flush(self) -> None:
        """Copy all collected tensors to their devices."""
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        groups: dict[tuple[int, Device], list[PendingTensor]] = {}
        for later in waiting:
            groups.setdefault((id(later.backend), later.target), []).append(later)
        for (_, target), group in groups.items():
            failed: list[int] = []
            try:
                made = batch.move_many(group[0].backend, [each.tensor for each in group], target, False, failed)
            except DevshimError as error:
                error.add_leaf(" or ".join(filter(None, [group[i].place for i in failed[:4]])))
                raise
            for later, tensor in zip(group, made, strict=True):
                later.tensor = tensor

    def resolve(self, found: Mapping[K, Any]) -> dict[K, Any]:
        """Return a mapping with every `PendingTensor` replaced by its tensor."""
        self.flush()
        return {key: each.tensor if isinstance(each, PendingTensor) else each for key, each in found.items()}

    def forget(self) -> None:
        """Release all tensors: a traceback would keep them, and their memory."""
        for later in self._all:
            later.tensor = None


def _as_key(backend: Backend, x: Tensor, source: Source) -> Tensor:
    """Return a tensor, or the random key of which it is the data."""
    return backend.from_random_key(x, source.key) if source.key else x


def _on_host(backend: Backend, array: np.ndarray) -> Tensor:
    """Return a tensor in host memory with the values of an array that nothing else uses."""
    try:
        try:
            return engine.make(*engine.from_host(backend, array, CPU, copy=False))
        except CopyNeededError:  # its address does not allow the framework's operators to read it
            return backend.from_numpy(array, CPU, copy=True)
    except Exception as error:
        engine.raise_full(backend, error, CPU, array.nbytes)
        raise
