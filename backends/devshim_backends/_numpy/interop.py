"""NumPy and DLPack."""

from __future__ import annotations

from typing import Any

import numpy as np

from devshim.backend import Tensor
from devshim.errors import ConversionError

from .tensors import NumpyTensors


class NumpyInterop(NumpyTensors):
    """Arrays as they are; `numpy.from_dlpack` refuses by itself what it cannot read."""

    def to_dlpack(self, x: Tensor) -> Any:
        if any(stride < 0 for stride in x.strides):
            # torch.from_dlpack aborts the process on negative strides (pytorch/pytorch#188023).
            raise ConversionError("an array with negative strides cannot be shared", "copy it first")
        if not x.flags.writeable:
            raise ConversionError("a read-only array cannot be shared by DLPack", "copy it first")
        if not x.dtype.isnative or x.dtype.kind not in "biufc":
            raise ConversionError(f"DLPack has no form for NumPy's dtype {x.dtype}", "convert the values first")
        return x

    def from_dlpack(self, source: Any) -> Tensor:
        try:
            return np.from_dlpack(source)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise ConversionError(f"NumPy cannot share this memory: {error}", "leave copy out to copy") from error
