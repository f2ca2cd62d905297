"""Splitting and joining PaddlePaddle tensors, and combining them element by element.

Paddle computes on its current GPU, wherever the tensors are (PaddlePaddle/Paddle#51706), so each of these calls opens
a scope of the tensors' GPU.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from ctypes import string_at
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, Literal

import paddle

from devshim.contract.overlaps import overlaps
from devshim.devices.device import CPU
from devshim_backends._paddle import devices, scopes
from devshim_backends._paddle.creation import NUMPY_DTYPES, EagerTensor
from devshim_backends._paddle.internals.thread_safety import ParallelThread
from devshim_backends._paddle.tensors import PaddleTensors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    import numpy as np

    from devshim.contract.backend import Tensor

_OPS: dict[str, Any] = {"sum": paddle.add, "mean": paddle.add, "max": paddle.maximum, "min": paddle.minimum}
_WIDER_DTYPES = {paddle.int8: paddle.int32, paddle.uint8: paddle.int32, paddle.int16: paddle.int32}
"""Wider dtypes for the smaller integers, for which PaddlePaddle (3.3) has no kernels."""
_WIDER_ON_HOST = {**_WIDER_DTYPES, paddle.float16: paddle.float32, paddle.bfloat16: paddle.float32}
"""The same for the host, which also lacks kernels for the 16-bit floats."""


class PaddleCollectives(PaddleTensors):
    """The mixin for work on several devices."""

    def narrow(self, x: Tensor, axis: int, start: int, stop: int) -> Tensor:
        self._require_dense((x,), "be split")
        with self._cuda_scope(x):
            return x[(slice(None),) * axis + (slice(start, stop),)]

    def concatenate(self, xs: Sequence[Tensor], axis: int) -> Tensor:
        self._require_dense(xs, "be joined")
        if len(xs) == 1:
            return self.copy_to(xs[0], self.device_of(xs[0]))
        with self._cuda_scope(xs[0]):
            return paddle.concat(list(xs), axis)

    def stack_tensors(self, xs: Sequence[Tensor]) -> Tensor:
        with self._cuda_scope(xs[0]):
            return paddle.stack(list(xs))

    def combine(self, xs: Sequence[Tensor], op: Literal["sum", "mean", "max", "min"]) -> Tensor:
        self._require_dense(xs, "be reduced")
        dtype = xs[0].dtype
        # PaddlePaddle 3.3.1 puts the result of an operator on empty tensors on the host.
        if not xs[0].size or len(xs) == 1:
            return self.detached_copy(xs[0])
        wider = (_WIDER_ON_HOST if self.device_of(xs[0]) is CPU else _WIDER_DTYPES).get(dtype)
        step = _OPS[op] if wider is None else _in_wider(_OPS[op], wider)
        with paddle.no_grad(), self._cuda_scope(xs[0]):
            result = reduce(step, xs)
            if op != "mean":
                return result
            return result / len(xs) if wider is None else (result.astype(wider) / len(xs)).astype(dtype)

    def weighted_sum(self, xs: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
        wider = _WIDER_ON_HOST.get(xs[0].dtype) if self.device_of(xs[0]) is CPU else None
        if wider is None:
            return super().weighted_sum(xs, weights)
        return super().weighted_sum([x.astype(wider) for x in xs], weights).astype(xs[0].dtype)

    def _require_dense(self, xs: Sequence[Tensor], what: str) -> None:
        """Refuse sparse tensors: Paddle reads their shapes wrong, and may end the process (3.3)."""
        for x in xs:
            if not self.is_tracer(x) and not x.is_dense():
                raise self._make_unusable_error(x, what)

    def detached_copy(self, x: Tensor) -> Tensor:
        return self.copy_to(x.detach(), self.device_of(x))

    def scalar_reader(self, x: Tensor) -> tuple[Callable[[Tensor], Any], np.dtype] | None:
        dtype = NUMPY_DTYPES.get(self.dtype_name(x))
        if type(x) is not EagerTensor or dtype is None or not x.is_dense():
            return None
        place, native_dtype, shape, size = x.place, x.dtype, x.shape, dtype.itemsize

        def read(x: Tensor) -> bytes | None:
            if type(x) is not EagerTensor or not x.is_dense() or x.shape != shape:
                return None
            # Paddle 3.3.1 has one object for each dtype, and 3.0.0 a new one each time; `!=` takes half a microsecond.
            if x.dtype is not native_dtype and x.dtype != native_dtype:
                return None
            # The simulated GPUs of the plug-in compute before a call returns, in host memory.
            return string_at(x.data_ptr(), size) if devices.only_host or x.place._equals(place) else None

        return read, dtype

    def stack_scalars(self, xs: Sequence[Tensor]) -> Tensor:
        if not devices.only_host:  # they were copied on other streams, and perhaps by other threads
            self.synchronize(self.device_of(xs[0]))
        with paddle.no_grad(), self._cuda_scope(xs[0]):
            same_form = len({(x.dtype, tuple(x.shape)) for x in xs}) == 1
            if same_form and xs[0].dtype != paddle.bfloat16:
                return paddle.stack(list(xs)).reshape([-1])  # two operators, however many scalars
            dtype = "float32" if all(x.dtype == paddle.bfloat16 for x in xs) else _common_dtype(xs)
            return paddle.concat([x.reshape([1]).astype(dtype) for x in xs])

    def assign(self, x: Tensor, value: Tensor) -> None:
        with paddle.no_grad(), self._cuda_scope(x):
            x.copy_(value, True)

    def has_overlap(self, x: Tensor) -> bool:
        return x.is_dense() and not x.is_contiguous() and overlaps(x.shape, x.strides)

    def _cuda_scope(self, x: Tensor) -> AbstractContextManager[object]:
        return nullcontext() if devices.only_host or self.is_tracer(x) else scopes.cuda_scope(x.place)

    def capture_thread_state(self) -> Callable[[], AbstractContextManager[object]]:
        return partial(_restore_thread_state, paddle.is_grad_enabled())


def _in_wider(fn: Callable[[Tensor, Tensor], Tensor], wider: Any) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a function of two tensors that computes in a wider dtype, and rounds each result to the tensors' own."""
    return lambda x, y: fn(x.astype(wider), y.astype(wider)).astype(x.dtype)


@contextmanager
def _restore_thread_state(is_recording: bool) -> Iterator[None]:
    """Set gradient recording in this thread of `ds.parallel`, and take turns in `paddle.grad`."""
    with ParallelThread(), paddle.set_grad_enabled(is_recording):
        yield


def _common_dtype(xs: Sequence[Tensor]) -> Any:
    """Return the name of the dtype to which NumPy promotes the dtypes of all; bfloat16 counts as float32."""
    arrays = [paddle.zeros([1], paddle.float32 if x.dtype == paddle.bfloat16 else x.dtype).numpy() for x in xs]
    return str(sum(arrays[1:], arrays[0]).dtype)
