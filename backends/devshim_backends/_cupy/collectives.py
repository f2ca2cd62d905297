"""Functions that split, join and combine arrays, on the GPU that they are on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import reduce
from typing import Any, Literal

import numpy as np

from devshim.contract.backend import Tensor
from devshim.contract.overlaps import overlaps
from devshim.devices.dtypes import widest
from devshim.errors import messages
from devshim_backends._cupy.creation import library
from devshim_backends._cupy.scopes import current_device
from devshim_backends._cupy.tensors import CupyTensors

_OPS = {"sum": "add", "mean": "add", "max": "maximum", "min": "minimum"}


class CupyCollectives(CupyTensors):
    """The mixin for collectives. devshim itself adds up over GPUs, because CuPy does not ship NCCL."""

    def narrow(self, x: Tensor, axis: int, start: int, stop: int) -> Tensor:
        return x[(slice(None),) * axis + (slice(start, stop),)]

    def concatenate(self, xs: Sequence[Tensor], axis: int) -> Tensor:
        if any(isinstance(x, np.ma.MaskedArray) for x in xs):
            return np.ma.concatenate(list(xs), axis=axis)  # type: ignore[no-untyped-call]
        device = self.device_of(xs[0])
        with current_device(device):
            return library(device).concatenate(list(xs), axis=axis)

    def stack_tensors(self, xs: Sequence[Tensor]) -> Tensor:
        device = self.device_of(xs[0])
        with current_device(device):
            return library(device).stack(list(xs))

    def combine(self, xs: Sequence[Tensor], op: Literal["sum", "mean", "max", "min"]) -> Tensor:
        device = self.device_of(xs[0])
        with current_device(device):
            functions = library(device)
            result = reduce(getattr(functions, _OPS[op]), xs[1:], xs[0].copy())
            if op == "mean":
                result = functions.divide(result, xs[0].dtype.type(len(xs)))
            return functions.asarray(result)  # NumPy returns a scalar for 0-d arrays

    def detached_copy(self, x: Tensor) -> Tensor:
        if isinstance(x, np.ma.MaskedArray):
            raise messages.masked()
        with current_device(self.device_of(x)):
            return x.copy()

    def scalar_reader(self, x: Tensor) -> tuple[Callable[[Tensor], Any], np.dtype] | None:
        dtype = x.dtype
        if type(x) is not np.ndarray or not dtype.isnative or self.dtype_name(x) == "bfloat16":
            return None  # reading a number from a GPU takes an operator

        def read(x: Tensor) -> bytes | None:
            return x.tobytes() if type(x) is np.ndarray and x.dtype is dtype and x.size == 1 else None

        return read, dtype

    def stack_scalars(self, xs: Sequence[Tensor]) -> Tensor:
        device = self.device_of(xs[0])
        self.synchronize(device)  # the arrays were copied on the stream and in the thread that were current then
        dtype = np.dtype(widest({self.dtype_name(x) for x in xs}))
        with current_device(device):
            return library(device).concatenate([x.reshape(1).astype(dtype, copy=False) for x in xs])

    def assign(self, x: Tensor, value: Tensor) -> None:
        with current_device(self.device_of(x)):
            x[...] = value

    def has_overlap(self, x: Tensor) -> bool:
        return not x.flags.c_contiguous and overlaps(x.shape, x.strides)

    def capture_thread_state(self) -> Callable[[], AbstractContextManager[object]]:
        errors: Any = np.geterr()  # NumPy's error state, for arrays in host memory
        return lambda: np.errstate(**errors)
