"""Functions that split, join and combine JAX arrays, and sums over several GPUs, for which XLA has collectives.

Workarounds:

* Without x64, operators truncate 64-bit values to 32 bits: see `wide`.
* An operator on an uncommitted array runs on JAX's default device, not on the array's device. So these functions set
  the default device to the array's.
* XLA compiles a sum over several GPUs, written as one program for all of them, to an all-reduce. A maximum also
  becomes an all-reduce, but that loses NaN (0.10.2, on host devices). So devshim computes a maximum without XLA.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from functools import lru_cache, partial, reduce
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax._src.array import ArrayImpl

from devshim.contract.backend import Backend
from devshim.devices.device import CPU
from devshim_backends._jax.devices import JaxDevices
from devshim_backends._jax.internals.clients import computes_on_cpu
from devshim_backends._jax.internals.widths import enable_x64, wide
from devshim_backends._jax.tensors import detached_copy, primal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from devshim.contract.backend import Tensor

_OPS: dict[str, Any] = {"sum": jax.lax.add, "mean": jax.lax.add, "max": jax.lax.max, "min": jax.lax.min}


class JaxCollectives(JaxDevices, Backend):
    """The mixin for collectives. Every result is committed to the device of its arguments."""

    def narrow(self, x: Tensor, axis: int, start: int, stop: int) -> Tensor:
        with self._compute_scope(x):
            return self._wait_for_host_memory(jax.lax.slice_in_dim(x, start, stop, axis=axis))

    def narrow_copies(self, x: Tensor) -> bool:
        if type(x) is not ArrayImpl or not x._committed:  # a part of an uncommitted array would be uncommitted
            return False
        natives = x.sharding.device_set  # of several CPU devices of JAX, only one is the host's
        return len(natives) == 1 and self.to_native(self.device_of(x)) in natives

    def concatenate(self, xs: Sequence[Tensor], axis: int) -> Tensor:
        with self._compute_scope(xs[0]):
            joined = jax.lax.concatenate(list(xs), axis)
            # XLA returns a single array unchanged.
            return self._wait_for_host_memory(jax.lax.copy_p.bind(joined) if len(xs) == 1 else joined)

    def stack_tensors(self, xs: Sequence[Tensor]) -> Tensor:
        widest = max(xs, key=lambda x: x.dtype.itemsize)  # JAX may have this dtype only with x64
        with wide(widest.dtype), self._compute_scope(xs[0]):
            return self._wait_for_host_memory(jnp.stack(xs))

    def combine(self, xs: Sequence[Tensor], op: Literal["sum", "mean", "max", "min"]) -> Tensor:
        with self._compute_scope(xs[0]):
            total = reduce(_OPS[op], xs[1:], xs[0])
            return self._wait_for_host_memory(_divide(total, len(xs)) if op == "mean" else total)

    def _wait_for_host_memory(self, result: Tensor) -> Tensor:
        """Wait until host memory was read: NumPy may share it, and writes by NumPy do not wait for XLA (0.10)."""
        if type(result) is ArrayImpl and computes_on_cpu(next(iter(result.sharding.device_set))):
            result.block_until_ready()
        return result

    def detached_copy(self, x: Tensor) -> Tensor:
        value = primal(x)  # the tracer of `jax.grad` must not outlive it
        if value is None:
            raise self._tracing_error("MetricLog.append")
        if isinstance(value, jax.Array):
            return detached_copy(value)
        # `jax.grad` leaves Python numbers unchanged.
        return self.from_numpy(np.asarray(value, x.dtype), CPU, copy=True)

    def scalar_reader(self, x: Tensor) -> tuple[Callable[[Tensor], Any], np.dtype] | None:
        if type(x) is not ArrayImpl or x.dtype.isbuiltin != 1:  # Python buffers do not support the other dtypes
            return None
        dtype, native, size = x.dtype, getattr(x.sharding, "_device", None), x.dtype.itemsize

        def read(x: Tensor) -> bytes | Tensor | None:
            if type(x) is not ArrayImpl or x.dtype is not dtype or x.sharding._device is not native:
                return None
            if not x.is_deleted() and not x.is_ready():  # `is_ready` crashes for a deleted array (0.10.2)
                # A buffer would wait for the computation, in which time the program can dispatch its next step.
                return detached_copy(x) if x.size == 1 else None
            view = memoryview(x)
            return view.tobytes() if view.nbytes == size else None

        return read, dtype

    def stack_scalars(self, xs: Sequence[Tensor]) -> Tensor:
        dtype = np.result_type(*{_numpy_dtype(x.dtype) for x in xs})
        with self._compute_scope(xs[0]), wide(dtype):
            if all(x.dtype == dtype and x.shape == xs[0].shape for x in xs):
                return jax.lax.concatenate(
                    [_stack_compiled(*xs[i : i + _STACK_SIZE]) for i in range(0, len(xs), _STACK_SIZE)], 0
                )
            return jnp.concatenate([jax.lax.convert_element_type(x.reshape(1), dtype) for x in xs])

    def all_reduce(self, xs: Sequence[Tensor], op: Literal["sum", "mean", "max", "min"]) -> Sequence[Tensor] | None:
        return self.all_reduce_many([xs], op)[0]

    def all_reduce_many(
        self, groups: Sequence[Sequence[Tensor]], op: Literal["sum", "mean", "max", "min"]
    ) -> Sequence[Sequence[Tensor] | None]:
        if op not in ("sum", "mean") or self.simulated or self.compiling():
            return [None] * len(groups)
        return reduce_over_gpus([self.to_native(self.device_of(x)) for x in groups[0]], groups, op)

    def capture_thread_state(self) -> Callable[[], AbstractContextManager[object]]:
        # Both settings belong to the thread that set them, or to the process.
        return partial(_with_settings, bool(jax.config.jax_enable_x64), jax.config.jax_default_device)

    @contextmanager
    def _compute_scope(self, x: Tensor) -> Iterator[None]:
        """Return a context for computing on an array's device and in its width; in a trace, JAX chooses the device."""
        with wide(x.dtype), ExitStack() as stack:
            if not self.is_tracer(x):
                stack.enter_context(jax.default_device(self.to_native(self.device_of(x))))
            yield


_STACK_SIZE = 32
"""The number of values that one compiled function stacks: the compile time grows with it."""


def _stack(*xs: Tensor) -> Tensor:
    """Stack numbers. JAX compiles this once for `_STACK_SIZE` numbers, and once for each smaller remainder."""
    return jnp.stack(xs).reshape(-1)


_stack_compiled: Any = jax.jit(_stack)


def _numpy_dtype(dtype: Any) -> Any:
    """Return the dtype, or a NumPy dtype for those that NumPy cannot compute with: bfloat16, 8-bit and 4-bit floats."""
    if dtype.isbuiltin == 1:
        return dtype
    return np.dtype("float32" if jnp.issubdtype(dtype, jnp.floating) else "int8")


def reduce_over_gpus(natives: Sequence[Any], groups: Sequence[Sequence[Tensor]], op: str) -> list[Sequence[Tensor]]:
    """Return the sum or mean of each group on each device, computed by one program for all groups.

    Args:
        natives: JAX's devices.
        groups: The groups. Each has one array on each device, of one shape and dtype, in the order of the devices.
        op: ``"sum"`` or ``"mean"``.
    """
    row_sharding, to_rows, reduce_rows = _compiled_reduction(tuple(natives), op)
    with wide(max((xs[0].dtype for xs in groups), key=_width)):
        # The arrays are committed first, because JAX would otherwise compute on its default device.
        rows = [to_rows(jax.device_put([xs[i] for xs in groups], native)) for i, native in enumerate(natives)]
        stacked = [
            jax.make_array_from_single_device_arrays((len(xs), *xs[0].shape), row_sharding, [row[k] for row in rows])
            for k, xs in enumerate(groups)
        ]
        reduced = reduce_rows(stacked)
    by_device = [{shard.device: shard.data for shard in each.addressable_shards} for each in reduced]
    return [[shards[native] for native in natives] for shards in by_device]


def _width(dtype: Any) -> int:
    return int(dtype.itemsize) // (2 if getattr(dtype, "kind", "V") == "c" else 1)


@lru_cache(maxsize=16)
def _compiled_reduction(natives: tuple[Any, ...], op: str) -> tuple[Any, Any, Any]:
    """Return the sharding of one row on each device, a function that makes arrays rows, and one that reduces rows.

    The result is cached, because JAX compiles each new function: once for the shapes and dtypes of a tree, not at every
    call.
    """
    mesh = jax.sharding.Mesh(np.array(natives), ("gpu",))
    one_row_each = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("gpu"))
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    return one_row_each, jax.jit(_to_rows), jax.jit(partial(_reduce_all, op), out_shardings=everywhere)


def _to_rows(xs: list[Tensor]) -> list[Tensor]:
    return [jax.lax.expand_dims(x, (0,)) for x in xs]


def _reduce_all(op: str, stacked: list[Tensor]) -> list[Tensor]:
    return [_reduce(op, each) for each in stacked]


def _reduce(op: str, stacked: Tensor) -> Tensor:
    total = jnp.sum(stacked, axis=0, dtype=stacked.dtype)
    return _divide(total, stacked.shape[0]) if op == "mean" else total


def _divide(x: Tensor, count: int) -> Tensor:
    return jax.lax.div(x, jax.lax.full_like(x, count))


@contextmanager
def _with_settings(x64: bool, device: Any) -> Iterator[None]:
    with enable_x64(x64), jax.default_device(device):
        yield
