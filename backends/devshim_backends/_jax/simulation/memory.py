"""The memory of simulated GPUs on JAX, counted buffer by buffer.

Requirements of this module:

* The hooks in `hooks` report each new array, so JAX does not need to be asked about all living arrays, which costs 10
  us per array. A `Buffer` counts while an array refers to it, so the count goes down when the last array over it is
  deleted.
* `update_counts` asks JAX which arrays are alive: when the user asks for the memory, and before an error for a full
  device. It finds arrays that the hooks did not see, and drops deleted ones.
* A buffer that several arrays share counts once. A buffer that was donated to an executable does not count.
* When GPUs are simulated again, arrays that are on them already are counted, but not refused.

Not counted: memory that an executable needs while it runs, NumPy arguments that JAX copies for one call, and arrays in
the host memory of a GPU (``pinned_host``).
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from devshim.errors import OutOfMemoryError
from devshim.simulation.memory import SimulatedDevice, SimulatedDevices
from devshim_backends._jax.buffers import addresses_of
from devshim_backends._jax.devices import in_gpu_host_memory
from devshim_backends._jax.internals.clients import live_arrays
from devshim_backends._jax.simulation.storage import (
    ARRAYS,
    LOCK,
    Buffer,
    CountedArray,
    add,
    drop,
    drop_dead,
    find_counted,
    underlying_array,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Parts = tuple[tuple[Any, SimulatedDevice, int], ...]
"""The buffers of an array: the JAX device of each, the simulated GPU, and the size in bytes."""


class JaxSimulatedDevices(SimulatedDevices):
    """The memory counts of simulated GPUs for JAX."""

    def count_freed(self) -> None:
        update_counts()

    def drop_freed(self) -> None:
        _drop_all_donated()
        with LOCK:
            drop_dead()

    def error_class(self) -> type[OutOfMemoryError]:
        """Return the class of the error for a full device."""
        return self._error_class


_simulated: dict[Any, SimulatedDevice] = {}
"""Maps JAX devices to simulated GPUs."""


def start_counting(by_native: Mapping[Any, SimulatedDevice]) -> None:
    """Count arrays on these devices, both existing and new ones, and stop counting on all other devices."""
    global _simulated
    with LOCK:
        drop_dead()
        for counted in list(ARRAYS.values()):
            if any(by_native.get(buffer.native) is not buffer.gpu for buffer in counted.buffers):
                drop(counted)
        _simulated = dict(by_native)
    update_counts()


def simulated_gpus_of(x: Any) -> list[tuple[Any, SimulatedDevice]]:
    """Return the simulated GPUs that an array has parts on, with JAX's devices for them."""
    by_native = _simulated
    return [(native, by_native[native]) for native in x.sharding.device_set if native in by_native]


def _gpus_storing(x: Any) -> list[tuple[Any, SimulatedDevice]]:
    """Return the simulated GPUs in whose own memory an array has parts; ``pinned_host`` memory is the host's."""
    return [] if in_gpu_host_memory(x) else simulated_gpus_of(x)


def count_arrays(xs: Iterable[Any], *, sources: Iterable[Any] = ()) -> None:
    """Count arrays that have just been made.

    Args:
        xs: The new objects; those that are not arrays are ignored.
        sources: Arrays that may share buffers with them.

    Raises:
        OutOfMemoryError: An array does not fit on its device.
        DeviceFailedError: A device has vanished.
    """
    buffers = _Sources(sources)
    for x in map(underlying_array, xs):
        if x is None or find_counted(x) is not None:
            continue
        gpus = _gpus_storing(x)
        if any(gpu.removed_at is not None for _, gpu in gpus):
            gpus[0][1].group.forget_unused()
            gpus = _gpus_storing(x)  # the device may be the host by now
        if gpus:
            _count_array(x, gpus, buffers.shared_with(x, [native for native, _ in gpus]))


def _count_array(x: Any, gpus: list[tuple[Any, SimulatedDevice]], shared: Mapping[Any, Buffer]) -> None:
    _require_dtype(x, gpus)
    size = part_bytes(x)
    new_buffers: list[Buffer] = []
    with LOCK:
        drop_dead()
        if find_counted(x) is not None:
            return
        try:
            new_buffers.extend(Buffer(native, gpu, size) for native, gpu in gpus if native not in shared)
        except BaseException:
            new_buffers.clear()  # the traceback would keep them alive, and they count
            if not shared:  # otherwise the memory also belongs to another array
                x.delete()
            raise
        add(x, [*shared.values(), *new_buffers])


def _require_dtype(x: Any, gpus: list[tuple[Any, SimulatedDevice]]) -> None:
    """Refuse an array of a dtype that the GPUs cannot hold, and free it."""
    _, gpu = gpus[0]
    if gpu.group.dtypes_lacking and str(x.dtype) in gpu.group.dtypes_lacking:
        x.delete()
        gpu.group.refuse_dtype(gpu.device, str(x.dtype))


def parts_of(x: Any) -> Parts:
    """Return the buffers that an array has on simulated GPUs."""
    gpus = _gpus_storing(x)
    return tuple((native, gpu, part_bytes(x)) for native, gpu in gpus)


def count_results(xs: Sequence[Any], parts: Sequence[Parts]) -> None:
    """Count arrays that a compiled function has just made, each in its own memory, with the buffers of each.

    Raises:
        OutOfMemoryError: They do not fit; all of them are deleted.
    """
    try:
        try:
            return _count_results(xs, parts)
        except OutOfMemoryError:
            pass
        _drop_all_donated()
        return _count_results(xs, parts)
    except BaseException:
        for x in xs:
            x.delete()  # the traceback of this error may keep them alive for long
        raise


def _count_results(xs: Sequence[Any], parts: Sequence[Parts]) -> None:
    with LOCK:
        drop_dead()
        for x, buffers in zip(xs, parts, strict=True):
            if find_counted(x) is None:
                add(x, [Buffer(*each) for each in buffers])


def count_unshared(xs: Sequence[Any], native: Any) -> None:
    """Count arrays that were moved to a device, each as a whole and in its own memory.

    The caller empties ``xs`` after an error. This function must not copy it: a traceback would keep the arrays alive.

    Raises:
        OutOfMemoryError: As for `count_arrays`.
        DeviceFailedError: As for `count_arrays`.
    """
    gpu = _simulated[native]
    for x in xs:
        _require_dtype(x, [(native, gpu)])
    with LOCK:
        drop_dead()
        for x in xs:
            try:
                buffer = Buffer(native, gpu, prod(x.shape) * int(x.dtype.itemsize))
            except BaseException:
                x.delete()
                raise
            add(x, [buffer])
            del buffer  # it counts while it is referenced, and a traceback would refer to it


def drop_donated(xs: Iterable[Any]) -> None:
    """Drop arrays whose memory was donated to an executable, or deleted."""
    for x in map(underlying_array, xs):
        if x is not None and find_counted(x) is not None and x.is_deleted():
            with LOCK:
                counted = find_counted(x)
                if counted is not None:
                    drop(counted)


def update_counts() -> None:
    """Update the counts to the arrays that JAX says are alive."""
    _drop_all_donated()
    for client in {native.client for native in _simulated}:
        alive = live_arrays(client)
        by_address: dict[tuple[Any, int], Buffer] | None = None
        for x in alive:
            if find_counted(x) is None and not x.is_deleted() and _gpus_storing(x):
                if by_address is None:
                    by_address = _buffers_by_address(alive)
                _count_unseen(x, by_address)
    with LOCK:
        drop_dead()


def _drop_all_donated() -> None:
    drop_donated(x for counted in list(ARRAYS.values()) if (x := counted()) is not None)


def part_bytes(x: Any) -> int:
    """Return the bytes that an array takes on each of its devices."""
    shape: tuple[int, ...] = x.sharding.shard_shape(x.shape)
    return prod(shape) * int(x.dtype.itemsize)


def _buffers_by_address(alive: Iterable[Any]) -> dict[tuple[Any, int], Buffer]:
    """Return the buffers that are counted, by device and address."""
    by_address = {}
    for x in alive:
        counted = find_counted(x)
        if counted is not None and not x.is_deleted():
            addresses = addresses_of(x)
            by_address.update({(b.native, addresses[b.native]): b for b in counted.buffers if b.native in addresses})
    return by_address


def _count_unseen(x: Any, by_address: dict[tuple[Any, int], Buffer]) -> None:
    """Count an array that the hooks did not see."""
    buffers, addresses = [], addresses_of(x)
    for native, gpu in _gpus_storing(x):
        key = (native, addresses[native])
        if key not in by_address:
            by_address[key] = Buffer(native, gpu, part_bytes(x), there=True)
        buffers.append(by_address[key])
    with LOCK:
        add(x, buffers)


class _Sources:
    """The buffers of arrays that may share memory with new arrays. Each array is looked up at most once."""

    def __init__(self, sources: Iterable[Any]) -> None:
        self._sources = sources
        self._counted: list[tuple[Any, CountedArray]] | None = None
        self._by_device: dict[Any, dict[int, Buffer]] = {}

    def shared_with(self, x: Any, natives: list[Any]) -> dict[Any, Buffer]:
        """Return the buffers that an array shares, by JAX device."""
        by_device = {native: buffers for native in natives if (buffers := self._buffers_on(native))}
        addresses = addresses_of(x) if by_device else {}
        return {
            native: buffers[addresses[native]] for native, buffers in by_device.items() if addresses[native] in buffers
        }

    def _buffers_on(self, native: Any) -> dict[int, Buffer]:
        """Return the buffers on one device, by address."""
        if native not in self._by_device:
            self._by_device[native] = {
                addresses_of(source)[native]: buffer
                for source, counted in self._live_arrays()
                for buffer in counted.buffers
                if buffer.native is native
            }
        return self._by_device[native]

    def _live_arrays(self) -> list[tuple[Any, CountedArray]]:
        if self._counted is None:
            arrays = [x for x in map(underlying_array, self._sources) if x is not None and not x.is_deleted()]
            pairs = [(x, find_counted(x)) for x in arrays]
            self._counted = [(x, counted) for x, counted in pairs if counted is not None]
        return self._counted
