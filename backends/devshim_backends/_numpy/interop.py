"""NumPy and DLPack.

NumPy's own refusal of a dtype comes with its exception set while the capsule is dropped; a capsule whose destructor is
Python code (MXNet's) then runs into that exception, and the call ends in `SystemError`.  So dtypes are looked at first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from devshim import _dlpack
from devshim.backend import Tensor
from devshim.errors import ConversionError

from .tensors import NumpyTensors

_BOOL_SINCE = "1.25.0"  # NumPy reads DLPack's bool from here on
_READABLE = frozenset(_dlpack.FORMS) - {"bfloat16"}
if np.lib.NumpyVersion(np.__version__) < _BOOL_SINCE:
    _READABLE -= {"bool"}


class _Checked:
    """A producer whose capsules are looked into before NumPy gets them."""

    def __init__(self, source: Any) -> None:
        self._source = source

    def __dlpack_device__(self) -> Any:
        return self._source.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        capsule = self._source.__dlpack__(**options)
        offered = _dlpack.read(capsule, versioned=True)
        if offered.dtype not in _READABLE:
            raise BufferError(f"it reads no {offered.dtype} by DLPack")
        return capsule


class NumpyInterop(NumpyTensors):
    """Arrays as they are, and what `numpy.from_dlpack` can read."""

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
            return np.from_dlpack(_Checked(source))
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise ConversionError(f"NumPy cannot share this memory: {error}", "leave copy out to copy") from error
