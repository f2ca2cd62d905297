"""Functions that move, copy and read JAX arrays.

Workarounds:

* ``device_put(numpy_array)`` shares the array's memory if that happens to be 64-byte aligned. A later write to the
  NumPy array then changes the "immutable" tensor. ``may_alias=False`` is ignored (jax-ml/jax#37830). So devshim copies
  the array into aligned memory, which only JAX then uses: one copy, not two. A real GPU has its own memory: there
  devshim waits until JAX has read the array, which takes a third of the time (256 MiB on an H100: 29 ms, not 94).
* ``device_put`` to an array's own device gives a new object over the same buffer, so `copy_to` copies.
* Without ``jax_enable_x64``, 64-bit values are truncated to 32 bits on their way in, and between a GPU and the host (by
  NumPy, in ``device_put``). `wide` avoids that.
* An array that is not in C order (from ``jax.dlpack`` or `jax.experimental.layout`) gives wrong values after
  ``device_put`` has moved it to another device (0.10), so devshim first copies it into C order.
* ``jax.jit`` ignores ``device_put`` inside a traced function, so moves are refused there.

Moved and copied arrays are committed to their device, so that JAX refuses to mix devices. An uncommitted array that is
on the target already is returned unchanged, because `place` promises the same object.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax._src import config, core
from jax._src.array import ArrayImpl
from jax._src.core import trace_state_clean
from jax._src.interpreters import partial_eval
from jax.core import Tracer

from devshim.contract.backend import Backend
from devshim.devices.device import CPU
from devshim.devices.dtypes import dtype_name
from devshim.errors import ConversionError, messages
from devshim_backends._jax.buffers import address_of, alias, default_memory_sharding, is_c_ordered
from devshim_backends._jax.devices import JaxDevices, concrete, in_gpu_host_memory
from devshim_backends._jax.host_tensors import ALIGNMENT, commit_on_host, is_narrow, private_copy
from devshim_backends._jax.internals import clients
from devshim_backends._jax.internals.widths import wide, wide_for_all
from devshim_backends._jax.simulation import hooks
from devshim_backends._keras.traversal import is_variable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device

_SHARD_MAP_TRACE = "ShardMapTrace"
"""The name of a class in a private module."""


def is_compiling() -> bool:
    """Return True if ``jax.jit`` or a similar function (`scan`, `checkpoint`, ...) is tracing the calling code.

    Also return True inside ``jax.shard_map`` outside ``jax.jit``: there a value is on all devices of a mesh.
    """
    trace = core.trace_ctx.trace
    while trace is not None:
        if isinstance(trace, partial_eval.DynamicJaxprTrace) or type(trace).__name__ == _SHARD_MAP_TRACE:
            return True
        trace = getattr(trace, "parent_trace", None)
    return False


class JaxTensors(JaxDevices, Backend):
    """The mixin for tensors."""

    def copy_to(self, x: Tensor, device: Device, non_blocking: bool = False) -> Tensor:
        if not trace_state_clean() and self.compiling():
            raise self._tracing_error("place")
        native = self.to_native(device)
        is_there = type(x) is ArrayImpl and native in x.sharding.device_set and len(x.sharding.device_set) == 1
        if is_there and not in_gpu_host_memory(x):
            return _duplicate(x, native, device is CPU or not non_blocking)
        value = concrete(x) if isinstance(x, Tracer) else x
        if type(x) is ArrayImpl and in_gpu_host_memory(x):
            # JAX moves host memory of a GPU only to an explicit sharding (0.10).
            with wide_for_all([x]):
                y = jax.device_put(x, default_memory_sharding(native))
        else:
            source = alias(x) if device is CPU else x
            with wide_for_all([x]):
                y = jax.device_put(source if x.ndim < 2 or is_c_ordered(value) else jax.lax.copy_p.bind(x), native)
            if isinstance(value, jax.Array) and native in value.sharding.device_set:
                y = jax.lax.copy_p.bind(y)
        if device is CPU or not (non_blocking or self._is_private(value)):
            # JAX reads the source later; by then, NumPy or PyTorch may have written to shared memory.
            jax.block_until_ready(concrete(y) if isinstance(y, Tracer) else y)
        return y

    def _is_private(self, value: Any) -> bool:
        """Return True for an array on a simulated GPU: only JAX writes to its memory (`simulation.hooks`)."""
        if not self.simulated or type(value) is not ArrayImpl or not clients.is_on_one_device(value):
            return False
        return self.device_of(value) is not CPU

    def copy_many(self, xs: Sequence[Tensor], device: Device, non_blocking: bool = False) -> Iterable[Tensor]:
        if not trace_state_clean() and self.compiling():
            raise self._tracing_error("place")
        if any(type(x) is ArrayImpl and in_gpu_host_memory(x) for x in xs):
            return [self.copy_to(x, device, non_blocking) for x in xs]
        native = self.to_native(device)
        values: list[Any] = [x if type(x) is ArrayImpl else concrete(x) for x in xs]
        ordered = [
            x if x.ndim < 2 or is_c_ordered(value) else jax.lax.copy_p.bind(x)
            for x, value in zip(xs, values, strict=True)
        ]
        already_there = [
            i
            for i, value in enumerate(values)
            if (type(value) is ArrayImpl or isinstance(value, jax.Array)) and native in value.sharding.device_set
        ]
        ys: list[Tensor] = []
        try:
            if (
                len(already_there) == len(xs)
                and all(type(x) is ArrayImpl for x in xs)
                and all(map(clients.is_on_one_device, xs))
            ):
                for x in xs:  # `device_put` would take twice the time of the copies
                    ys.append(_duplicate(x, native, False))  # the list is emptied after an error
            elif self.simulated and not already_there and all(type(x) is ArrayImpl for x in ordered):
                ys = hooks.put_from_elsewhere(lambda: jax.device_put(ordered, native), native)
            else:
                with wide_for_all(ordered):
                    ys = jax.device_put([*map(alias, ordered)] if device is CPU else ordered, native)
                for i in already_there:
                    ys[i] = jax.lax.copy_p.bind(ys[i])
            if device is CPU or not (non_blocking or all(map(self._is_private, values))):
                jax.block_until_ready([y if type(y) is ArrayImpl else concrete(y) for y in ys])
        except BaseException:
            ys.clear()  # the traceback would keep both lists alive, and their memory
            ordered.clear()
            raise
        return ys

    # ------------------------------------------------------------------ host memory
    def to_numpy(self, x: Tensor, copy: bool) -> np.ndarray:
        if not copy and type(x) is ArrayImpl and not x.is_deleted():
            view = np.asarray(x)
            buffer: Any = view.base
            if type(buffer) is memoryview and buffer.obj is x:  # it is the array's own buffer, not a copy
                return view
        value = primal(x) if isinstance(x, Tracer) else x
        if value is None:
            raise self._tracing_error("to_numpy")
        if not isinstance(value, jax.Array):  # jax.grad wraps NumPy arrays and numbers without converting them
            return np.array(value) if copy else np.asarray(value)
        if jax.dtypes.issubdtype(value.dtype, jax.dtypes.extended):
            msg = f"NumPy has no dtype for a JAX array of {value.dtype}"
            raise ConversionError(msg, "convert jax.random.key_data(x) instead")
        if value.is_deleted():
            msg = "this JAX array was deleted, or donated to a compiled function"
            raise ConversionError(msg, "convert it before that")
        if not copy and clients.is_on_one_device(value) and in_gpu_host_memory(value):
            raise messages.cannot_share("this JAX array", "NumPy cannot view the pinned host memory of a GPU")
        native, *_ = value.sharding.device_set  # all devices have the same platform
        if not clients.computes_on_cpu(native) and not copy:
            raise messages.copy_needed(self.device_of(value), CPU)
        source = alias(value)
        found = _read_explicitly(source)
        if copy and source is not value and found.flags.owndata:
            found.flags.writeable = True  # JAX made it for the alias, so nothing else refers to it
            return found
        if copy:
            return found.copy()
        if found.size and found.ctypes.data != address_of(value):
            raise messages.cannot_share("this JAX array", f"NumPy cannot view the dtype {value.dtype}")
        return found

    def from_numpy(self, array: np.ndarray, device: Device, copy: bool) -> Tensor:
        if not trace_state_clean() and self.compiling():
            raise self._tracing_error("from_numpy")
        if not copy and device is not CPU:
            raise messages.copy_needed(CPU, device)
        native = self.to_native(device)
        if device is CPU and copy and not self.simulated_or_removed and is_narrow(array.dtype):
            found = commit_on_host(private_copy(array, array.dtype), native)
            if found is not None:
                return found
        may_share = clients.computes_on_cpu(native)  # as it is for simulated GPUs
        with wide(array.dtype):
            try:
                x = jax.device_put(private_copy(array, array.dtype) if copy and may_share else array, native)
            except TypeError as error:
                raise messages.no_dtype(self, array.dtype.name, "float64") from error
        if not may_share:
            x.block_until_ready()
        if not copy and x.size and address_of(x) != array.ctypes.data:
            raise messages.cannot_share(
                "this array", f"JAX shares only C-contiguous memory that is aligned to {ALIGNMENT} bytes"
            )
        return x

    # ------------------------------------------------------------------ properties
    def dtype_name(self, x: Tensor) -> str:
        return dtype_name(x.dtype)

    def shape(self, x: Tensor) -> tuple[int, ...]:
        return tuple(x.shape)

    def is_writable(self, x: Tensor) -> bool:
        return False

    def nbytes(self, x: Tensor) -> int:
        return int(x.size) * int(x.dtype.itemsize)

    def sources(self, x: Tensor) -> Sequence[tuple[Device, int]]:
        value: Any = x if type(x) is ArrayImpl else concrete(x)  # asking for other types takes longer than the rest
        if not (type(value) is ArrayImpl or isinstance(value, jax.Array)) or clients.is_on_one_device(value):
            return super().sources(x)
        parts: dict[Device, int] = {}
        for shard in value.addressable_shards:
            device = self.from_native(shard.device) or CPU
            if shard.replica_id == 0:  # of equal replicas only one is copied
                parts[device] = parts.get(device, 0) + self.nbytes(shard.data)
        return tuple(parts.items())

    def shards(self, x: Tensor) -> Sequence[Tensor] | None:
        value: Any = concrete(x._value if is_variable(x) else x)
        if not isinstance(value, jax.Array) or clients.is_on_one_device(value):
            return None
        return [shard.data for shard in value.addressable_shards]

    def synchronize(self, device: Device) -> None:
        if not clients.started():
            return
        native = self.to_native(device)
        jax.effects_barrier()
        jax.block_until_ready([x for x in clients.arrays_on(native) if not x.is_deleted()])

    def wait_for_values(self, x: Tensor, device: Device) -> None:
        jax.block_until_ready(concrete(x) if isinstance(x, Tracer) else x)


def _duplicate(x: Tensor, native: Any, wait: bool) -> Tensor:
    """Return a committed copy on the array's one device; going through `jax.device_put` would take twice the time.

    The array is committed before the copy, because JAX would otherwise copy it on the default device.
    """
    y = jax.lax.copy_p.bind(_commit(x, native))
    if wait:
        y.block_until_ready()
    return y


def _read_explicitly(x: Tensor) -> np.ndarray:
    """Return the values of an array; JAX's transfer guard allows it, as it allows ``jax.device_get``."""
    state = config.guard_lib.thread_local_state()
    before, state.explicit_device_get = state.explicit_device_get, True
    try:
        return np.asarray(x)
    finally:
        state.explicit_device_get = before


_copy_compiled = jax.jit(
    jax.lax.copy_p.bind
)  # compiled, as it copies a scalar each step: a third of the primitive's time


def detached_copy(x: Tensor) -> Tensor:
    """Return a copy on the array's one device, which stays when the array is deleted or donated to a function."""
    (native,) = x.sharding.device_set
    with wide(x.dtype):
        y: Tensor = _copy_compiled(_commit(x, native))
    return y


def _commit(x: Tensor, native: Any) -> Tensor:
    """Return the array, committed to the one device it is on, without a copy."""
    return x if x._committed else ArrayImpl(x.aval, _single_device_sharding(native), [x], committed=True)


@cache
def _single_device_sharding(native: Any) -> Any:
    """Return the sharding for a single device."""
    return jax.sharding.SingleDeviceSharding(native)


def primal(x: Tensor) -> Any | None:
    """Return the array to differentiate, or None under ``jit`` and under ``vmap``, where ``x`` is one row of it."""
    while isinstance(x, Tracer):
        x = getattr(x, "primal", None)
    return x
