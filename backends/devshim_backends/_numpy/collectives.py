"""Functions that split, join and combine NumPy arrays.

Arrays on simulated GPUs are `simulation.simulate.SimulatedArray`, so results of computations stay on the same device.
"""

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
from devshim_backends._numpy.tensors import NumpyTensors, is_masked

_OPS: dict[str, np.ufunc] = {"sum": np.add, "mean": np.add, "max": np.maximum, "min": np.minimum}


class NumpyCollectives(NumpyTensors):
    """The mixin for collectives. It returns views where NumPy does, and new memory otherwise."""

    def narrow(self, x: Tensor, axis: int, start: int, stop: int) -> Tensor:
        return x[(slice(None),) * axis + (slice(start, stop),)]

    def concatenate(self, xs: Sequence[Tensor], axis: int) -> Tensor:
        # NumPy's own function drops masks.
        join = np.ma.concatenate if any(isinstance(x, np.ma.MaskedArray) for x in xs) else np.concatenate
        return join(list(xs), axis=axis)

    def stack_tensors(self, xs: Sequence[Tensor]) -> Tensor:
        return self.concatenate([np.expand_dims(x, 0) for x in xs], 0)

    def combine(self, xs: Sequence[Tensor], op: Literal["sum", "mean", "max", "min"]) -> Tensor:
        result = reduce(_OPS[op], xs) if len(xs) > 1 else xs[0].copy()
        if op == "mean":
            # Divide by a number of the array's own type: before NumPy 2, a 0-d float16 divided by an int is float64.
            result = np.divide(result, xs[0].dtype.type(len(xs)))
        return np.asanyarray(result)  # NumPy returns a scalar for 0-d arrays

    def weighted_sum(self, xs: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
        # Before NumPy 2, a 0-d array times a Python float is float64.
        terms = [x if weight == 1 else x * x.dtype.type(weight) for x, weight in zip(xs, weights, strict=True)]
        return np.asanyarray(reduce(np.add, terms))

    def detached_copy(self, x: Tensor) -> Tensor:
        if is_masked(x):
            raise messages.masked()
        return x.copy()

    def scalar_reader(self, x: Tensor) -> tuple[Callable[[Tensor], Any], np.dtype] | None:
        kind, dtype, device = type(x), x.dtype, self.device_of(x)
        if is_masked(x) or not dtype.isnative or self.dtype_name(x) == "bfloat16":
            return None

        def read(x: Tensor) -> bytes | None:
            same = type(x) is kind and x.dtype is dtype and x.size == 1 and self.device_of(x) is device
            return x.tobytes() if same else None

        return read, dtype

    def stack_scalars(self, xs: Sequence[Tensor]) -> Tensor:
        dtype = np.dtype(widest({self.dtype_name(x) for x in xs}))
        return np.concatenate([x.reshape(1) if x.dtype == dtype else x.reshape(1).astype(dtype) for x in xs])

    def assign(self, x: Tensor, value: Tensor) -> None:
        x[...] = value

    def has_overlap(self, x: Tensor) -> bool:
        return not x.flags.c_contiguous and overlaps(x.shape, x.strides)

    def capture_thread_state(self) -> Callable[[], AbstractContextManager[object]]:
        errors: Any = np.geterr()  # it is thread-local before NumPy 2
        return lambda: np.errstate(**errors)
