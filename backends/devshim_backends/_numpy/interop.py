"""NumPy and DLPack.

NumPy's own refusal of a dtype comes with its exception set while the capsule is dropped; a capsule whose destructor is
Python code (MXNet's) then runs into that exception, and the call ends in `SystemError`.  So dtypes are looked at first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from devshim import _dlpack, _refusals
from devshim.backend import Tensor
from devshim.errors import ConversionError

from .tensors import NumpyTensors

_BOOL_SINCE = "1.25.0"  # NumPy reads DLPack's bool from here on
_READABLE = frozenset(_dlpack.FORMS) - {"bfloat16"}
if np.lib.NumpyVersion(np.__version__) < _BOOL_SINCE:
    _READABLE -= {"bool"}


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
            return np.from_dlpack(_dlpack.Checked(source, _check))
        except Exception as error:
            raise _refusals.not_taken(self, source, error) from error


def _check(offered: _dlpack.Offer) -> None:
    if offered.dtype not in _READABLE:
        raise BufferError(f"it reads no {offered.dtype} by DLPack")
