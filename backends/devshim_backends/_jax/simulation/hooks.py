"""Hooks in JAX that see every new array on a simulated GPU, installed while GPUs are simulated.

Requirements of this module:

* JAX's operators run out of memory as devshim's calls do. If their results cannot possibly fit, the error comes before
  they run, so that the host does not store what the simulated GPU would refuse. Otherwise it comes after they ran.
* Arrays on the host are as fast as without simulation.
* A simulated GPU has its own memory. On the CPU, JAX shares the memory of a NumPy array that is 64-byte aligned
  (jax-ml/jax#37830), and may read other host memory after the call has returned. So NumPy arrays are copied first, and
  a function that got an array of the host, or a move from it, ends when JAX has read it. DLPack exports a copy only.
* XLA runs a function on several CPU devices in a thread for each, from a pool with few threads. If a program calls the
  next one before the last has ended, functions with collectives can take all threads and deadlock
  (jaxlib 0.10.2, two devices and two processor cores, in a loop of 200 steps). Therefore each call of these functions
  ends when its results are there.

There are two kinds of hooks. Compiled code, and so every operator, runs in ``ExecuteReplicated.__call__``; moves use
one of three implementations of ``device_put``. After its first run, an operator can take JAX's C++ fast path, which
skips Python. ``_get_fastpath_data`` decides that, and the hook makes the fast path count what it returns, or refuses
it (see `fast_path`).
"""

from __future__ import annotations

import threading
from math import prod
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax._src import dispatch, pjit
from jax._src.array import ArrayImpl
from jax._src.interpreters import pxla

from devshim.errors import messages
from devshim.simulation.memory import ROUND
from devshim.transfers import dlpack
from devshim_backends._jax.devices import in_gpu_host_memory, is_gpu_host_memory
from devshim_backends._jax.host_tensors import private_copy
from devshim_backends._jax.simulation import memory, storage
from devshim_backends._jax.simulation.internals import fast_path, mismatch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from devshim.simulation.memory import SimulatedDevice
    from devshim_backends._jax.simulation.memory import JaxSimulatedDevices

_fastpath = pjit._get_fastpath_data
_execute = pxla.ExecuteReplicated.__call__
_put_impl = dispatch.device_put_p.impl
_put_many, _put_parts = dispatch._batched_device_put_impl, pxla.batched_device_put
native_export = ArrayImpl.__dlpack__
"""JAX's own method."""

_moving = threading.local()
_simulated: Mapping[Any, SimulatedDevice] = {}
_all_simulated: JaxSimulatedDevices | None = None


def install(simulated: JaxSimulatedDevices, by_native: Mapping[Any, SimulatedDevice]) -> None:
    """Install the hooks, which count and check what is made on simulated GPUs. The mapping's keys are JAX devices.

    If they are installed, only the devices change: native names and guards may have replaced functions over them.
    """
    global _simulated, _all_simulated
    were_installed = _all_simulated is not None
    _simulated, _all_simulated = by_native, simulated
    if not were_installed:
        _replace_functions()
    fast_path.watch(True)  # those decided before count nothing, or would refuse nothing from now on


def _replace_functions() -> None:
    pjit._get_fastpath_data = _recording_fastpath
    pxla.ExecuteReplicated.__call__ = _recording_execute
    dispatch.device_put_p.def_impl(_recording_put_impl)
    dispatch._batched_device_put_impl = _recording_put_many
    pxla.batched_device_put = _recording_put_parts
    mismatch.install()
    ArrayImpl.__dlpack__ = _export_copy


def uninstall() -> None:
    """Uninstall the hooks."""
    global _simulated, _all_simulated
    _simulated, _all_simulated = {}, None
    ArrayImpl.__dlpack__ = native_export
    mismatch.uninstall()
    pxla.batched_device_put = _put_parts
    dispatch._batched_device_put_impl = _put_many
    dispatch.device_put_p.def_impl(_put_impl)
    pxla.ExecuteReplicated.__call__ = _execute
    pjit._get_fastpath_data = _fastpath
    fast_path.watch(False)


def _recording_fastpath(executable: Any, *args: Any, **kwargs: Any) -> Any:
    by_native = _simulated  # read once, because another thread may uninstall the hooks
    natives = executable.unsafe_call._local_devices if hasattr(executable, "unsafe_call") else ()
    gpus = [by_native[native] for native in natives if native in by_native]
    if gpus and not fast_path.is_allowed(gpus, sum(_result_sizes(executable.unsafe_call)), args[1]):
        return None
    if natives and not fast_path.may_take(natives, args[1], bool(gpus)):
        return None
    found = _fastpath(executable, *args, **kwargs)
    waits = len(natives) > 1 or any(isinstance(x, np.ndarray) or _is_jax_array_on_host(x) for x in args[1])
    return fast_path.count_results(found, waits) if gpus and found is not None else found


def _recording_put_impl(*xs: Any, **params: Any) -> Any:
    return _put_and_count(lambda: _put_impl(*xs, **params), xs)


def _recording_put_many(*xs: Any, **params: Any) -> Any:
    return _put_and_count(lambda: _put_many(*xs, **params), xs)


def _recording_put_parts(aval: Any, sharding: Any, xs: Any, natives: Any, *args: Any, **kwargs: Any) -> Any:
    private = [_copy_if_shared(x, native) for x, native in zip(xs, natives, strict=True)]
    return _put_and_count(lambda: [_put_parts(aval, sharding, private, natives, *args, **kwargs)], xs)[0]


def _copy_if_shared(x: Any, native: Any) -> Any:
    """Return what to put on a device: a copy of a NumPy array, which a simulated GPU could share or read late."""
    if native not in _simulated or not isinstance(x, np.ndarray):
        return x
    return x.copy() if x.dtype.hasobject else private_copy(x, x.dtype).view(type(x))  # strings are objects


def _is_jax_array_on_host(x: Any) -> bool:
    return type(x) is ArrayImpl and not x.is_deleted() and not memory.simulated_gpus_of(x)


def _export_copy(x: Any, **options: Any) -> Any:
    """Refuse to export the memory of a simulated GPU: DLPack would call it the host's, and others could write to it.

    A consumer that asks for the host's memory gets a copy, as from a real GPU.
    """
    if not memory.simulated_gpus_of(x):
        return native_export(x, **options)
    target = options.get("dl_device")
    if target is None or int(target[0]) != dlpack.CPU or options.get("copy") is False:
        msg = "the memory of a simulated GPU cannot be exported; copy the array with ds.convert or ds.to_numpy"
        raise BufferError(msg)
    return native_export(x, **{**options, "dl_device": (dlpack.CPU, 0)})


def _put_and_count(put: Callable[[], Any], sources: Any) -> Any:
    """Count the arrays that a move made, but not those of the moves inside it: they share buffers."""
    if getattr(_moving, "now", False):
        return put()
    for x in map(storage.underlying_array, sources):
        for _, gpu in () if x is None or x.is_deleted() else memory.simulated_gpus_of(x):
            gpu.require_shown()
    moved = _without_counting(put)
    if any(map(_is_jax_array_on_host, sources)):
        jax.block_until_ready(moved)
    try:
        memory.count_arrays(moved, sources=sources)
    except BaseException:
        if isinstance(moved, list):
            moved.clear()  # the traceback would keep the arrays and their memory alive
        raise
    return moved


def put_from_elsewhere(put: Callable[[], list[Any]], native: Any) -> list[Any]:
    """Move arrays to a device on which none of them is, and count them there.

    Arrays from another device are in their own memory. So shared buffers do not need to be looked for, and this takes a
    third of the time that `memory.count_arrays` takes.
    """
    if native not in _simulated or getattr(_moving, "now", False):
        return put()
    moved: list[Any] = _without_counting(put)
    try:
        memory.count_unshared(moved, native)
    except BaseException:
        moved.clear()  # the traceback would keep the arrays and their memory alive
        raise
    return moved


def _without_counting(function: Callable[[], Any]) -> Any:
    """Run a function without counting the moves that JAX makes for itself, such as for the 2 in ``x * 2``."""
    before, _moving.now = getattr(_moving, "now", False), True
    try:
        return function()
    finally:
        _moving.now = before


def _recording_execute(executable: Any, *args: Any) -> Any:
    by_native = _simulated  # read once, because another thread may uninstall the hooks
    gpus = [by_native[native] for native in executable._local_devices if native in by_native]
    if not gpus:
        return _execute(executable, *args)
    for gpu in gpus:
        if gpu.removed_at is not None and gpu.is_forgotten():
            return _recording_execute(executable, *args)
        gpu.check_alive("an operator")
        if gpu.limit is not None:
            _refuse_if_too_large(executable, gpu, args)
    reads_host = any(map(_is_jax_array_on_host, args))
    results = _without_counting(lambda: _execute(executable, *args))
    if len(executable._local_devices) > 1 or reads_host:
        jax.block_until_ready(results)
    memory.drop_donated(args)
    try:
        memory.count_arrays(results)
    except BaseException:
        for x in map(storage.underlying_array, results):
            if x is not None:
                x.delete()  # the traceback of this error may keep it alive for long
        raise
    return results


def _refuse_if_too_large(executable: Any, gpu: SimulatedDevice, args: Any) -> None:
    """Raise if the results cannot fit, even if they reuse the memory of all arguments."""
    sizes = _result_sizes(executable)
    needed = sum(map(_rounded_up, sizes))
    free = gpu.info().free
    if free is None or needed <= free:
        return
    memory.update_counts()
    free, reusable = gpu.info().free or 0, sum(_argument_bytes(x) for x in args)
    if needed <= free + reusable:
        return
    for size in sizes:
        if size > free:
            simulated = _all_simulated
            assert simulated is not None
            raise messages.full_device(gpu.device, size, free, simulated.error_class())
        free -= _rounded_up(size)


def _rounded_up(size: int) -> int:
    return -(-size // ROUND) * ROUND


def _result_sizes(executable: Any) -> list[int]:
    """Return the bytes that each result takes on each of its devices."""
    handler = executable.out_handler
    return [_result_bytes(*each) for each in zip(handler.out_avals, handler.out_shardings, strict=True)]


def _result_bytes(aval: Any, sharding: Any) -> int:
    """Return the bytes that a result takes on each of its devices; 0 for no array, and for the memory of the host."""
    if is_gpu_host_memory(sharding):
        return 0
    shape, itemsize = getattr(aval, "shape", None), getattr(getattr(aval, "dtype", None), "itemsize", None)
    return 0 if shape is None or itemsize is None else prod(sharding.shard_shape(shape)) * int(itemsize)


def _argument_bytes(x: Any) -> int:
    array = storage.underlying_array(x)
    if array is None or array.is_deleted() or in_gpu_host_memory(array):
        return 0
    return _rounded_up(memory.part_bytes(array))
