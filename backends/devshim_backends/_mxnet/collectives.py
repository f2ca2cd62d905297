"""Splitting and joining MXNet arrays, and combining them element by element or with a kvstore.

The result has the same interface (``mx.np`` or ``mx.nd``) as the array that it is made from.
"""

from __future__ import annotations

import ctypes
import operator
import time
from contextlib import ExitStack, contextmanager
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, Literal

import mxnet as mx
import numpy as np
from mxnet.base import _LIB

from devshim.devices.dtypes import widest
from devshim.errors import UnsupportedError
from devshim_backends._mxnet.creation import MxnetCreation
from devshim_backends._mxnet.internals.native import BFLOAT16, CODES, IS_2, device_code, dtype_code, numpy_shapes
from devshim_backends._mxnet.tracing import require_recordable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from devshim.contract.backend import Tensor

_OPS = {"sum": "add", "mean": "add", "max": "maximum", "min": "minimum"}
_ND_NAMES = {"add": "broadcast_add", "maximum": "broadcast_maximum", "minimum": "broadcast_minimum"}
"""The names of these operators in ``mx.nd``."""

_MOVED_AS = {"int16": "int32", "uint16": "int32", "uint32": "int64", "uint64": "int64"}
"""Intermediate dtypes for those that 2.0 has but cannot join, or cut along the second axis; 1.9 does not have them."""
if IS_2:  # oneDNN does not support its arrays without dimensions
    _MOVED_AS["bfloat16"] = "float32"

_KVSTORE_DTYPES = frozenset({"float16", "float32", "float64", "int32", "int64"})
"""The dtypes that a kvstore can sum on cards."""

_LONG_READ = 500e-6
"""Seconds of waiting that cost a loop more than copies do, each of which takes 35e-6; MXNet cannot be asked."""


class MxnetCollectives(MxnetCreation):
    """The mixin for work on several devices."""

    def narrow(self, x: Tensor, axis: int, start: int, stop: int) -> Tensor:
        if isinstance(x, mx.nd.sparse.BaseSparseNDArray):
            msg = "MXNet cannot split a sparse array"
            raise UnsupportedError(msg, "call x.tostype('default') first")
        with numpy_shapes():
            index = (slice(None),) * axis + (slice(start, stop),)
            return self._move_elements(lambda xs: xs[0][index], [x]) if axis else x[index]

    def concatenate(self, xs: Sequence[Tensor], axis: int) -> Tensor:
        with numpy_shapes():
            if len(xs) == 1:
                return self.copy_to(xs[0], self.device_of(xs[0]))
            if isinstance(xs[0], mx.np.ndarray):
                return self._wait_on_host(self._move_elements(partial(mx.np.concatenate, axis=axis), xs))
            return self._wait_on_host(self._move_elements(lambda xs: mx.nd.concat(*xs, dim=axis), xs))

    def stack_tensors(self, xs: Sequence[Tensor]) -> Tensor:
        with numpy_shapes():
            stack = mx.np.stack if isinstance(xs[0], mx.np.ndarray) else lambda xs: mx.nd.stack(*xs)
            return self._wait_on_host(self._move_elements(stack, xs))

    def _move_elements(self, fn: Callable[[list[Tensor]], Tensor], xs: Sequence[Tensor]) -> Tensor:
        """Return the result of a function that moves elements, in a dtype that has a kernel, and cast back."""
        name = self.dtype_name(xs[0])
        via = _MOVED_AS.get(name)
        return fn(list(xs)) if via is None else self.cast(fn([self.cast(x, via) for x in xs]), self.dtype(name))

    def _wait_on_host(self, x: Tensor) -> Tensor:
        """Wait until host memory has been read: NumPy may share it, and NumPy's writes do not wait for MXNet."""
        if not self.is_tracer(x) and device_code(x) & 1:  # kinds 1, 3 and 5 are host memory, 2 is a card's
            x.wait_to_read()
        return x

    def combine(self, xs: Sequence[Tensor], op: Literal["sum", "mean", "max", "min"]) -> Tensor:
        require_recordable(self, "sum with MXNet's own operators here, or the block's results outside")
        name = _OPS[op]
        with numpy_shapes(), mx.autograd.pause():
            is_np = isinstance(xs[0], mx.np.ndarray)
            step: Any = getattr(mx.np, name) if is_np else getattr(mx.nd, _ND_NAMES[name])
            is_bfloat16 = self.dtype_name(xs[0]) == "bfloat16"
            if is_bfloat16:
                step = self._in_float32(step)
            total = reduce(step, xs) if len(xs) > 1 else self.detached_copy(xs[0])
            if op == "mean":
                total = self._in_float32(operator.truediv)(total, len(xs)) if is_bfloat16 else total / len(xs)
            return self._wait_on_host(total)

    def weighted_sum(self, xs: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
        with numpy_shapes():
            if self.dtype_name(xs[0]) != "bfloat16":
                return super().weighted_sum(xs, weights)
            wide = super().weighted_sum([self.cast(x, "float32") for x in xs], weights)
            return self.cast(wide, BFLOAT16)

    def _in_float32(self, fn: Callable[[Any, Any], Tensor]) -> Callable[[Any, Any], Tensor]:
        """Return a function of bfloat16 that computes in float32, and rounds: MXNet has few operators for bfloat16."""

        def compute(*xs: Any) -> Tensor:
            return self.cast(fn(*(self.cast(x, "float32") if hasattr(x, "handle") else x for x in xs)), BFLOAT16)

        return compute

    def all_reduce(self, xs: Sequence[Tensor], op: Literal["sum", "mean", "max", "min"]) -> Sequence[Tensor] | None:
        if op not in ("sum", "mean") or self.simulated or self.dtype_name(xs[0]) not in _KVSTORE_DTYPES:
            return None
        with numpy_shapes(), mx.autograd.pause():
            return all_reduce_by_kvstore(xs, op)

    def detached_copy(self, x: Tensor) -> Tensor:
        with mx.autograd.pause():
            return self.copy_to(x.detach(), self.device_of(x), non_blocking=True)  # a log does not wait for its values

    def scalar_reader(self, x: Tensor) -> tuple[Callable[[Tensor], Any], np.dtype] | None:
        name = self.dtype_name(x)
        if type(x) not in (mx.np.ndarray, mx.nd.NDArray) or name == "bfloat16":
            return None
        kind, code, device, dtype = type(x), dtype_code(x), self.device_of(x), np.dtype(name)
        size, buffer, one = dtype.itemsize, ctypes.create_string_buffer(16), ctypes.c_size_t(1)

        waits = False

        def read(x: Tensor) -> bytes | Tensor | None:
            nonlocal waits
            if type(x) is not kind or dtype_code(x) != code or self.device_of(x) is not device:
                return None
            if waits:
                return self.detached_copy(x) if x.size == 1 else None
            start = time.perf_counter()
            with numpy_shapes():  # not `FAST_LIB`: the call waits; it fails for another size
                failed = _LIB.MXNDArraySyncCopyToCPU(x.handle, buffer, one)
            waits = time.perf_counter() - start > _LONG_READ
            return None if failed else buffer.raw[:size]

        return read, dtype

    def scalar_bytes(self, x: Tensor) -> bytes:
        with numpy_shapes():
            found: bytes = x.asnumpy().tobytes()
        return found

    def stack_scalars(self, xs: Sequence[Tensor]) -> Tensor:
        names = {self.dtype_name(x) for x in xs}
        name = widest(names)
        common = _MOVED_AS.get(name, name)
        with numpy_shapes(), mx.autograd.pause():
            if names == {common} and len({(type(x), x.shape) for x in xs}) == 1:  # few operators, however many arrays
                stacked = mx.np.stack(list(xs)) if isinstance(xs[0], mx.np.ndarray) else mx.nd.stack(*xs)
                return stacked.reshape((-1,))
            # Cast first: 2.0 cannot reshape a zero-dimensional bfloat16 array to one axis (oneDNN).
            numbers = self.concatenate([self.cast(x, common).reshape((1,)) for x in xs], 0)
            return numbers if common == name or name not in CODES else self.cast(numbers, name)

    def assign(self, x: Tensor, value: Tensor) -> None:
        if isinstance(x, mx.nd.sparse.BaseSparseNDArray):
            msg = "MXNet cannot write dense values into a sparse array"
            raise UnsupportedError(msg, "replace the array itself")
        value = value.as_np_ndarray() if isinstance(x, mx.np.ndarray) else value.as_nd_ndarray()
        with numpy_shapes(), mx.autograd.pause():
            value.copyto(x)
        self._wait_on_host(x)

    def capture_thread_state(self) -> Callable[[], AbstractContextManager[object]]:
        util, autograd = mx.util, mx.autograd
        # Turn NumPy arrays off first: MXNet refuses to turn them off after the shapes.
        semantics = [(util.np_array, False), (util.np_shape, util.is_np_shape()), (util.np_array, util.is_np_array())]
        if hasattr(util, "np_default_dtype"):  # 2.0's
            semantics.append((util.np_default_dtype, util.is_np_default_dtype()))
        return partial(_enter_thread_state, semantics, autograd.is_recording(), autograd.is_training())


@contextmanager
def _enter_thread_state(semantics: list[tuple[Any, bool]], recording: bool, training: bool) -> Iterator[None]:
    """Enter the state of one thread in another: MXNet keeps ``npx.set_np`` and ``autograd.record`` per thread."""
    with ExitStack() as stack:
        for scope, active in semantics:
            stack.enter_context(scope(active))
        stack.enter_context(mx.autograd._RecordingStateScope(recording, training))
        yield


def all_reduce_by_kvstore(xs: Sequence[Tensor], op: str) -> Sequence[Tensor]:
    """Return the sum or mean of arrays that are each on a different MXNet device, once on each of these devices.

    It uses its own kvstore, so nothing is left behind, and the given arrays are only read.
    """
    totals = [x.copy() for x in xs]  # each with the interface of its source, on the same device
    store = mx.kv.create("device")
    store.init("0", xs[0])
    store.pushpull("0", list(xs), out=totals)
    return [total / len(xs) for total in totals] if op == "mean" else totals
