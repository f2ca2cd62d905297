"""Functions that split, join and combine TensorFlow tensors, and sums over GPUs by ``tf.distribute``.

An operator computes on its thread's default device, not on the device of its tensors (2.21), so each runs in a scope of
the tensors' device. On a GPU some operators leave int32 results in host memory (2.21: ConcatV2, Pack, AddV2, Maximum,
Minimum); devshim moves these to the GPU.

TensorFlow offers sums by NCCL only through a ``MirroredStrategy``, one for each set of devices, and they are fast only
inside a ``tf.function``. devshim caches both objects, because TensorFlow keeps its communicators as well.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import record
from tensorflow.python.ops import gen_array_ops

from devshim.devices.dtypes import widest
from devshim.errors import UnsupportedError
from devshim_backends._tensorflow.internals.locations import EAGER, ON_HOST, require_dense
from devshim_backends._tensorflow.scopes import computes_on_host
from devshim_backends._tensorflow.tensors import TensorflowTensors, mark_placed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device

_OPS: dict[str, Any] = {"sum": tf.add, "mean": tf.add, "max": tf.maximum, "min": tf.minimum}

_NOT_STACKED = {"int8", "uint8", "uint16"}
"""The dtypes for which a GPU has the operator Concat but not Pack (2.21)."""

REDUCED_DTYPES = frozenset({tf.float16, tf.float32, tf.float64, tf.int64})
"""The dtypes that TensorFlow's NCCL operator accepts, without int32, which a function passes to it in host memory."""


class TensorflowCollectives(TensorflowTensors):
    """The mixin for collectives."""

    def narrow(self, x: Tensor, axis: int, start: int, stop: int) -> Tensor:
        _require_all_dense([x], "split")
        # NumPy arrays: TensorFlow takes 12 us to make a tensor from a list, and 1 us from an array (2.21).
        rank = len(self.shape(x))
        begin, size = np.zeros(rank, np.int64), np.full(rank, -1, np.int64)
        begin[axis], size[axis] = start, stop - start
        if type(x) is EAGER and computes_on_host():
            return gen_array_ops._slice(x, begin, size)
        with self._scope_of(x):
            return self._move_bits(lambda xs: tf.slice(xs[0], begin, size), [tf.convert_to_tensor(x)])

    def concatenate(self, xs: Sequence[Tensor], axis: int) -> Tensor:
        _require_all_dense(xs, "join")
        with self._scope_of(xs[0]):
            if len(xs) == 1:  # TensorFlow would return the tensor itself
                return self.copy_to(xs[0], self.device_of(xs[0]))
            joined = self._move_bits(lambda xs: tf.concat(xs, axis), [tf.convert_to_tensor(x) for x in xs])
            return self._move_result(joined, xs[0])

    def stack_tensors(self, xs: Sequence[Tensor]) -> Tensor:
        _require_all_dense(xs, "join")
        with self._scope_of(xs[0]) if tf.executing_eagerly() else self._scope_in_trace(xs):
            return self._move_result(self._move_bits(tf.stack, [tf.convert_to_tensor(x) for x in xs]), xs[0])

    def combine(self, xs: Sequence[Tensor], op: Literal["sum", "mean", "max", "min"]) -> Tensor:
        _require_all_dense(xs, "reduce")
        with self._scope_of(xs[0]):
            values = list(xs) if _records_nothing(xs) else [tf.stop_gradient(tf.convert_to_tensor(x)) for x in xs]
            if len(values) == 1:
                return self.copy_to(values[0], self.device_of(values[0]))
            result = reduce(_OPS[op], values)
            return self._move_result(result / tf.cast(len(xs), result.dtype) if op == "mean" else result, xs[0])

    def detached_copy(self, x: Tensor) -> Tensor:
        if type(x) is EAGER:
            return x  # it cannot change, and tapes refer to the tensors that they need
        with self._scope_of(x):
            return tf.stop_gradient(tf.convert_to_tensor(x))  # the variable's current value, which it may replace

    def scalar_reader(self, x: Tensor) -> tuple[Callable[[Tensor], Any], np.dtype] | None:
        if type(x) is not EAGER or x.dtype in ON_HOST or x.dtype == tf.bfloat16:
            return None
        dtype, where = x.dtype, x.backing_device
        size, form = dtype.size, memoryview(x).format

        def read(x: Tensor) -> bytes | None:
            if type(x) is not EAGER or x.backing_device != where:
                return None
            seen = memoryview(x)
            return seen.tobytes() if seen.nbytes == size and seen.format == form else None

        return read, np.dtype(dtype.as_numpy_dtype)

    def stack_scalars(self, xs: Sequence[Tensor]) -> Tensor:
        with self._scope_of(xs[0]):
            names = {self.dtype_name(x) for x in xs}
            name = widest(names)
            if names == {name} and name not in _NOT_STACKED and not any(len(x.shape) for x in xs):
                return gen_array_ops.pack(list(xs))  # one operator for all the scalars
            dtype = tf.as_dtype(name)
            return tf.concat([tf.reshape(tf.cast(x, dtype), [1]) for x in xs], 0)

    def ran_on(self, x: Tensor) -> Device | None:
        return self.device_named(x.device) if type(x) is EAGER and x.dtype in ON_HOST else None

    def _move_bits(self, move: Callable[[list[Tensor]], Tensor], xs: list[Tensor]) -> Tensor:
        """Return the result of an operator that only moves numbers; int32 tensors on a GPU are passed as float32.

        TensorFlow's GPU operators read int32 from host memory, and leave int32 results there (2.21).
        """
        first = xs[0]
        if type(first) is not EAGER or first.dtype != tf.int32 or not self.is_accelerator(self.device_of(first)):
            return move(xs)
        return tf.bitcast(move([tf.bitcast(x, tf.float32) for x in xs]), tf.int32)

    def _move_result(self, result: Tensor, x: Tensor) -> Tensor:
        """Return a result in the memory of a tensor's device, in whose scope the caller is."""
        if type(result) is not EAGER or result.dtype not in ON_HOST or self.device_of(result) is self.device_of(x):
            return result
        return mark_placed(result._copy())

    def all_reduce(self, xs: Sequence[Tensor], op: Literal["sum", "mean", "max", "min"]) -> Sequence[Tensor] | None:
        if (
            op not in ("sum", "mean")
            or self.simulated
            or xs[0].dtype not in REDUCED_DTYPES
            or not tf.executing_eagerly()
        ):
            return None
        return all_reduce_on_gpus([str(self.to_native(self.device_of(x))) for x in xs], xs, op)

    def _scope_of(self, x: Tensor) -> AbstractContextManager[object]:
        """Return the scope of a tensor's device; inside a ``tf.function`` the function's scope stays."""
        if self.is_tracer(x) or computes_on_host():
            return nullcontext()
        entered: AbstractContextManager[object] = tf.device(self.to_native(self.device_of(x)))
        return entered

    def is_variable(self, x: Tensor) -> bool:
        return isinstance(x, tf.Variable)

    def assign(self, x: Tensor, value: Tensor) -> None:
        x.assign(value)

    def capture_thread_state(self) -> Callable[[], AbstractContextManager[object]]:
        return nullcontext  # a tape records only the operators of its own thread


def _require_all_dense(xs: Sequence[Tensor], verb: str) -> None:
    """Refuse sparse and ragged tensors; the slices of a sparse gradient become a dense one."""
    for x in xs:
        if not isinstance(x, tf.IndexedSlices):
            require_dense(x, f"devshim cannot {verb} tensors of the type {{}}", UnsupportedError)


def _records_nothing(xs: Sequence[Tensor]) -> bool:
    """Return True if no tape can record operators on these tensors, which are eager."""
    return all(type(x) is EAGER for x in xs) and tf.executing_eagerly() and not record.could_possibly_record()


def all_reduce_on_gpus(names: Sequence[str], xs: Sequence[Tensor], op: str) -> Sequence[Tensor]:
    """Return the sum or mean of tensors on several TensorFlow devices, once on each of the devices.

    Args:
        names: TensorFlow's names of the devices, each once.
        xs: One tensor for each device.
        op: ``"sum"`` or ``"mean"``.
    """
    strategy, reduced = _build_reducer(tuple(names), op)
    values = [tf.stop_gradient(tf.convert_to_tensor(x)) for x in xs]
    spread = strategy.experimental_distribute_values_from_function(
        lambda context: values[context.replica_id_in_sync_group]
    )
    found: Sequence[Tensor] = strategy.experimental_local_results(reduced(spread))
    return found


@lru_cache(maxsize=8)
def _build_reducer(names: tuple[str, ...], op: str) -> tuple[Any, Callable[[Any], Any]]:
    strategy = tf.distribute.MirroredStrategy(list(names))

    def reduce_one(x: Tensor) -> Tensor:
        return tf.distribute.get_replica_context().all_reduce(op, x)

    return strategy, tf.function(lambda spread: strategy.run(reduce_one, (spread,)), reduce_retracing=True)
