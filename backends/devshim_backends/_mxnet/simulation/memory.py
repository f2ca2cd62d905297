"""The memory that MXNet's arrays use on simulated GPUs, counted chunk by chunk.

A *chunk* is a piece of MXNet memory, which an array and its views share. `count_array` runs for every new array
(see `hooks`): it counts the array's chunk, if it is not counted yet, and makes a weak reference to the array's handle.
When the last handle to a chunk has died, the chunk is no longer counted.

MXNet itself can use a chunk for longer: the tape of a recording does, and an array's gradient. Python is not notified
when MXNet releases that chunk, so `track_chunks` makes our own handle to it. A chunk whose only handle is ours
is no longer counted. `_sweep` checks that, and `release_unused` does so after it has waited for pending work: before
the numbers are read, and before a GPU counts as full.

* Pending work does not keep a chunk counted: later work in the queue can reuse a card's memory immediately.
* The engine releases its references shortly after the work is done, which Python cannot observe: `release_unused`
  waits briefly, once for each chunk that stays.
* The function that records the end of a handle is written in C, so that a Ctrl-C during it is not lost. The next call
  completes work that a Ctrl-C interrupted.
* Arrays from before the simulation, or from when the GPU was the host, count from `begin` on.

Not counted: memory that never becomes a Python array, such as an operator's temporary memory and the memory that a
hybridized block or a kvstore stores inside; and sparse arrays, which get their memory after they were made.
"""

from __future__ import annotations

import gc
import sys
import time
from _thread import allocate_lock
from collections import deque
from typing import TYPE_CHECKING, Any
from weakref import ref

import mxnet as mx
import numpy as np

from devshim.devices import host
from devshim.errors import messages
from devshim_backends._mxnet.internals.native import device_code, is_recording
from devshim_backends._mxnet.simulation import storage
from devshim_backends._mxnet.simulation.storage import OwnHandle

if TYPE_CHECKING:
    from collections.abc import Iterable

    from devshim.simulation.memory import SimulatedDevice, SimulatedDevices

_CPU = 1
_PAUSES = (0.0, 0.001, 0.002, 0.004, 0.008, 0.016)
"""Seconds to wait for the engine to release what it has finished with."""
_SWEEP_MARGIN = 64
"""The number of lingering chunks that may accumulate before the next sweep."""


class _Chunk:
    """One chunk on a simulated GPU."""

    __slots__ = ("__weakref__", "address", "arrays", "gpu", "holders_after_wait", "own_handle")

    def __init__(self, address: int, gpu: SimulatedDevice, nbytes: int) -> None:
        self.address, self.gpu = address, gpu
        gpu.track(self, nbytes)
        self.arrays: set[int] = set()
        """The addresses of the references (`_HandleRef`) to the Python arrays in the chunk."""
        self.own_handle: OwnHandle | None = None
        """Set as soon as MXNet may use the chunk for longer than Python's arrays do."""
        self.holders_after_wait = -1
        """The number of holders after the last wait for MXNet to release the chunk."""


class _HandleRef(ref):  # type: ignore[type-arg]  # generic for the type checker only
    """A weak reference to the handle of an array on a simulated GPU: a handle lives as long as its array."""

    __slots__ = ("chunk", "key")

    chunk: _Chunk | None
    key: int


_lock = allocate_lock()
_simulated: SimulatedDevices | None = None
_existing = 0
_host_bytes = host.memory().total or sys.maxsize
"""The memory of the host, which no array on a GPU without a limit can exceed. MXNet allocates later, on a thread."""
_refs: dict[int, _HandleRef] = {}
"""By the handle of each Python array on a simulated GPU; another array may have the handle by now: see `_chunk_of`."""
_chunks: dict[int, _Chunk] = {}
"""By the address of the chunk."""
_lingering: dict[int, _Chunk] = {}
"""Chunks that only MXNet itself still refers to."""
_dead_refs: deque[_HandleRef] = deque()
"""References to arrays that have died. The garbage collector, which takes no lock, adds them."""
_sweep_threshold = _SWEEP_MARGIN


def begin(devices: SimulatedDevices, shown: int, existing: int) -> None:
    """Count memory on these simulated GPUs, of existing and of future arrays; arrays on other GPUs no longer count.

    Args:
        devices: All simulated GPUs.
        shown: How many of them are visible.
        existing: How many there are, including those that were removed and still contain arrays, which keep counting.
    """
    global _simulated, _existing
    with _lock:
        _sweep()
        for handle, reference in list(_refs.items()):
            if reference.chunk is None or reference.chunk.gpu.device.index >= existing:
                del _refs[handle]
        for chunk in [chunk for chunk in _chunks.values() if chunk.gpu.device.index >= existing]:
            _release(chunk)
        counted = 0 if _simulated is None else _existing
        _simulated, _existing = devices, existing
    if existing > counted:  # otherwise every existing array was counted when it was made
        _count_existing(shown)


def _count_existing(shown: int) -> None:
    """Count the arrays that Python has, and their gradients, on the visible simulated GPUs."""
    for x in gc.get_objects():
        if isinstance(x, mx.nd.NDArray) and getattr(x, "handle", None) and device_code(x) >> 32 <= shown:
            count_array(x, exists=True)
            # reading the gradient creates an array, and counts it
            if _chunk_of(x.handle.value) is not None and (gradient := x.grad) is not None:
                track_chunks([gradient.handle])


def _chunk_of(handle: int) -> _Chunk | None:
    """Return the chunk that is counted for the array of a handle, and not for an earlier array with that handle."""
    reference = _refs.get(handle)
    return None if reference is None or reference() is None else reference.chunk


def count_array(x: Any, exists: bool = False) -> None:
    """Count an array that has just been made, if it is on a simulated GPU.

    Args:
        x: The array.
        exists: True if it was made before the simulation, which then accepts its dtype.

    Raises:
        ConversionError: The GPU imitates one that cannot hold the dtype.
        OutOfMemoryError: It does not fit there.
        DeviceFailedError: The GPU has vanished.
        SimulationError: The GPU was removed.
    """
    handle = x.handle.value
    code = device_code(x)
    index = (code >> 32) - 1
    if code & 0xFFFFFFFF != _CPU or not 0 <= index < _existing or _chunk_of(handle) is not None:
        return
    devices = _simulated
    assert devices is not None
    address, gpu = storage.chunk(handle), devices[index]
    if gpu.removed_at is not None and gpu.is_forgotten():
        return count_array(x, exists)
    gpu.require_shown()  # even for a view, which takes no memory
    if devices.dtypes_lacking and not exists and (name := np.dtype(x.dtype).name) in devices.dtypes_lacking:
        devices.refuse_dtype(gpu.device, name)
    if address not in _chunks:
        nbytes = storage.nbytes(address)
        if gpu.limit is None and not exists and nbytes > _host_bytes:
            raise messages.full_device(gpu.device, nbytes, host.memory().free, gpu.error_class)
        _reclaim(gpu, nbytes)
    with _lock:
        _process_dead()
        reference = _HandleRef(x.handle, _dead_refs.append)
        reference.key, reference.chunk = handle, None
        _refs[handle] = reference
        chunk = _chunks.get(address) or _Chunk(address, gpu, storage.nbytes(address))
        # No call between these: a Ctrl-C before them leaves nothing counted, and after them the array's end is enough.
        reference.chunk = chunk
        _chunks[address] = chunk
        chunk.arrays.add(id(reference))
        _lingering.pop(address, None)
        if is_recording():
            _hold_chunk(chunk, x.handle)


def label_borrowed(handle: int, index: int) -> None:
    """Label an array that MXNet has just made as one on a simulated GPU; its memory counts already, for another array.

    Args:
        handle: The address of the array, of which Python has no array yet.
        index: The index of the GPU.
    """
    storage.set_cpu(handle, index + 1)
    devices, address = _simulated, storage.chunk(handle)
    if devices is None or index >= _existing:
        return
    with _lock:
        _process_dead()
        _chunks[address] = _Chunk(address, devices[index], 0)


def require_present(handles: Iterable[int]) -> None:
    """Raise `SimulationError` if one of these arrays is on a simulated GPU that was removed."""
    for handle in handles:
        chunk = _chunk_of(handle)
        if chunk is not None:
            chunk.gpu.require_shown()


def track_chunks(handles: Iterable[Any]) -> None:
    """Record that MXNet itself may keep using the chunks of these arrays when Python's arrays are gone."""
    for handle in handles:
        chunk = _chunk_of(handle.value)
        if chunk is not None and chunk.own_handle is None:
            with _lock:
                _hold_chunk(chunk, handle)


def release_unused() -> None:
    """Stop counting the chunks that MXNet has released, once all work on them is done."""
    with _lock:
        _sweep()
        unsure = [chunk for chunk in _lingering.values() if _count_holders(chunk) != chunk.holders_after_wait]
        waiting = [chunk.own_handle for chunk in unsure]  # keeps them alive while the lock is not held
    for own_handle in waiting:
        assert own_handle is not None
        own_handle.wait()
    for pause in _PAUSES if unsure else ():
        time.sleep(pause)
        with _lock:
            _sweep()
            if not any(chunk.address in _lingering for chunk in unsure):
                return
    with _lock:
        for chunk in unsure:
            if chunk.own_handle is not None:
                chunk.holders_after_wait = _count_holders(chunk)


def _reclaim(gpu: SimulatedDevice, nbytes: int) -> None:
    """Stop counting chunks that MXNet has released, before a simulated GPU counts as full, or reaches a new peak."""
    lingering = len(_lingering)
    if not lingering and not _dead_refs:
        return
    info = gpu.info()
    if info.free is not None and nbytes > info.free:
        release_unused()
    elif info.used + nbytes > info.peak or lingering > _sweep_threshold:  # type: ignore[operator]  # never None
        with _lock:
            _sweep()


# ---------------------------------------------------------------------- with the lock held
def _hold_chunk(chunk: _Chunk, handle: Any) -> None:
    if chunk.own_handle is None:
        chunk.own_handle = OwnHandle(handle)


def _count_holders(chunk: _Chunk) -> int:
    assert chunk.own_handle is not None
    return storage.sharers(chunk.own_handle.handle.value or 0)


def _process_dead() -> None:
    """Process the arrays that have died; after a Ctrl-C one may be processed twice, which has no further effect."""
    while _dead_refs:
        _remove_array(_dead_refs[0])
        _dead_refs.popleft()


def _remove_array(reference: _HandleRef) -> None:
    key: int | None = getattr(reference, "key", None)  # None: Ctrl-C came before it was set
    chunk: _Chunk | None = getattr(reference, "chunk", None)
    if key is not None and _refs.get(key) is reference:
        del _refs[key]
    if chunk is None:
        return
    chunk.arrays.discard(id(reference))
    if not chunk.arrays and _chunks.get(chunk.address) is chunk:
        if chunk.own_handle is None:
            _release(chunk)
        else:
            _lingering[chunk.address] = chunk


def _sweep() -> None:
    """Stop counting the chunks that nothing holds except `_Chunk.own_handle`."""
    global _sweep_threshold
    _process_dead()
    for chunk in reversed(list(_lingering.values())):  # the newest may refer to chunks that they were made from
        if chunk.own_handle is not None and chunk.own_handle.is_alone():
            _release(chunk)
    _sweep_threshold = 2 * len(_lingering) + _SWEEP_MARGIN


def _release(chunk: _Chunk) -> None:
    chunk.own_handle = None
    _chunks.pop(chunk.address, None)  # the simulated GPU counts the chunk as long as this object is referred to
    _lingering.pop(chunk.address, None)
