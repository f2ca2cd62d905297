"""The memory blocks on TensorFlow's simulated GPUs, and the count of their bytes.

Requirements of this module:

* Memory counts once on each device, however many tensors and variables use it. TensorFlow's tensors share memory after
  ``identity``, ``reshape``, a split or slice along the first axis, and as values of variables.
* A block exists while anything uses a part of it, because a TensorFlow tensor keeps the whole buffer alive. The records
  of tensors and variables refer to the block, and the device counts its bytes while the block exists.
* A tensor may be destroyed at any moment, for example by the garbage collector. A function in C then adds it to `GONE`,
  and the next caller that has the lock handles it. If an interrupt stops this, the next caller continues.

A block is identified by its address, because the memory of a living tensor is not allocated again.
"""

from __future__ import annotations

from _thread import allocate_lock
from bisect import bisect_left, bisect_right, insort
from collections import deque
from typing import TYPE_CHECKING, Any, cast
from weakref import ref

from devshim.simulation.memory import ROUND, SimulatedDevice, SimulatedDevices
from devshim_backends._tensorflow.failures import FullDeviceError, RemovedDeviceError

if TYPE_CHECKING:
    from devshim.devices.device import Device
    from devshim.errors import OutOfMemoryError

__all__ = [
    "GONE",
    "LOCK",
    "NO_ADDRESS",
    "SIMULATED",
    "MemoryBlock",
    "TensorRef",
    "TensorflowSimulatedDevice",
    "release_gone",
]


NO_ADDRESS = -1
"""The address of memory that tensors never use."""


class TensorRef(ref):  # type: ignore[type-arg]  # generic for the type checker only
    """A weak reference to a tensor, with the block that the tensor uses."""

    __slots__ = ("block",)

    block: MemoryBlock

    def release(self) -> None:
        """Record that the tensor was deleted."""
        block = getattr(self, "block", None)  # None if the tensor could not be counted
        if block is not None:
            block.tensors.discard(id(self))
        TENSOR_REFS.pop(id(self), None)


TENSOR_REFS: dict[int, TensorRef] = {}
"""Maps the address of a reference to the reference, for living tensors."""


class MemoryBlock:
    """Memory on a simulated GPU, counted while anything refers to the block.

    Attributes:
        gpu: The simulated GPU.
        start: The address of its first byte, or `NO_ADDRESS`.
        end: The address after its last byte.
        tensors: The addresses of the references to tensors that use it.
        variables: The addresses of the handles of variables whose values are in it.
    """

    __slots__ = ("__weakref__", "_more", "end", "gpu", "start", "tensors", "variables")

    def __init__(self, gpu: TensorflowSimulatedDevice, start: int, end: int) -> None:
        self.gpu, self.start, self.end = gpu, start, end
        self.tensors: set[int] = set()
        self.variables: set[int] = set()
        self._more: list[MemoryBlock] = []

    def add_tensor(self, tensor_ref: TensorRef) -> None:
        """Record that a tensor uses the block, until the tensor is deleted."""
        tensor_ref.block = self
        TENSOR_REFS[id(tensor_ref)] = tensor_ref
        self.tensors.add(id(tensor_ref))

    def grow(self, end: int) -> None:
        """Count more memory at the end of the block; raises as `SimulatedDevice.track` does."""
        rounded = [-(-(last - self.start) // ROUND) * ROUND for last in (self.end, end)]
        more = MemoryBlock(self.gpu, NO_ADDRESS, NO_ADDRESS)
        self.gpu.track(more, rounded[1] - rounded[0])
        self._more.append(more)
        self.end = end


class _BlockRef(ref):  # type: ignore[type-arg]  # generic for the type checker only
    """A weak reference to a block, with the block's address."""

    __slots__ = ("start",)

    start: int


class TensorflowSimulatedDevice(SimulatedDevice):
    """A simulated GPU and the blocks on it. All methods are called with `LOCK` held."""

    def __init__(self, device: Device, full: type[OutOfMemoryError]) -> None:
        super().__init__(device, full)
        self._starts: list[int] = []
        self._blocks: dict[int, _BlockRef] = {}
        self._gone_blocks: deque[_BlockRef] = deque()

    def block_at(self, address: int) -> MemoryBlock | None:
        """Return the block that contains an address, or None."""
        self._remove_gone_blocks()
        while place := bisect_right(self._starts, address):
            block_ref = self._blocks.get(self._starts[place - 1])
            found = None if block_ref is None else block_ref()
            if found is not None:
                return found if address < found.end else None
            del self._starts[place - 1]  # that block does not exist any more
        return None

    def _remove_gone_blocks(self) -> None:
        """Remove the addresses of blocks that are gone."""
        left = self._gone_blocks
        while left:
            start = getattr(left[0], "start", NO_ADDRESS)  # an interrupt may have come before it was set
            if self._blocks.get(start) is left[0]:
                del self._blocks[start]
            place = bisect_left(self._starts, start)
            if start not in self._blocks and place < len(self._starts) and self._starts[place] == start:
                del self._starts[place]
            left.popleft()

    def certainly_fits(self, nbytes: int) -> bool:
        """Return True if some memory certainly fits, even if freed memory of variables is still counted."""
        return self.limit is None or self._used + nbytes + ROUND <= self.limit

    def add(self, start: int, end: int) -> MemoryBlock:
        """Return the block for some memory, and count it if it is new; raises as `SimulatedDevice.track` does."""
        return self.add_to(self.block_at(start), start, end)

    def add_to(self, found: MemoryBlock | None, start: int, end: int) -> MemoryBlock:
        """Do the same as `add`; ``found`` is what `block_at` returns for the first address."""
        if found is None:
            found = MemoryBlock(self, start, end)
            self.track(found, end - start)
            block_ref = _BlockRef(found, self._gone_blocks.append)
            block_ref.start = start
            insort(self._starts, start)
            self._blocks[start] = block_ref
        elif end > found.end:  # so far, only a part of it was seen
            found.grow(end)
        return found

    def add_without_address(self, nbytes: int) -> MemoryBlock:
        """Return a new block without an address; raises as `SimulatedDevice.track` does."""
        result = MemoryBlock(self, NO_ADDRESS, NO_ADDRESS)
        self.track(result, nbytes)
        return result


class TensorflowSimulatedDevices(SimulatedDevices):
    """TensorFlow's simulated GPUs."""

    def new(self, device: Device) -> SimulatedDevice:
        return TensorflowSimulatedDevice(device, self._error_class)

    def count_freed(self) -> None:
        with LOCK:
            release_gone()

    def __getitem__(self, index: int) -> TensorflowSimulatedDevice:
        return cast("TensorflowSimulatedDevice", super().__getitem__(index))


SIMULATED = TensorflowSimulatedDevices(FullDeviceError)
SIMULATED.removed_error = RemovedDeviceError

LOCK = allocate_lock()
"""The lock for all changes to blocks. It is never held while an operator runs."""

GONE: deque[Any] = deque()
"""Weak references whose objects are gone. Each has a method ``release``, which can be called twice."""


def release_gone() -> None:
    """Handle the entries of `GONE`. The caller holds the lock."""
    while GONE:
        GONE[0].release()
        GONE.popleft()
