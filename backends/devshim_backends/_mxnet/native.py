"""The handful of calls to MXNet's C interface that this adapter makes, and what differs between 1.9 and 2.0.

Requirements this module answers:

* Asking where an array is must cost less than MXNet's own ``x.ctx``, which builds a context object: one call
  that fills one 64-bit integer (kind in the low half, number in the high half).
* Shapes ``()`` and ``(0, 3)`` exist for MXNet only while "NumPy shape semantics" are on, which is a setting of the
  thread, off at the start in 1.9 and, in 2.0, off in every thread but the first.  It is switched on around a call and
  put back: never left on.

MXNet's functions are fetched anew through ``PyDLL``: its own ``CDLL`` gives the interpreter lock away and takes it
back, which costs more than these calls do.  Those that may wait for other work go through MXNet's own.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_bool, c_int, c_int64, c_void_p
from typing import Any

import mxnet as mx
import numpy as np
from mxnet.base import _LIB, check_call
from mxnet.ndarray.ndarray import _DTYPE_MX_TO_NP, _new_alloc_handle

NATIVE: Any = type(mx.cpu())
"""What MXNet calls a device: ``mx.Context`` in 1.9, ``mx.Device`` in 2.0."""
IS_2 = hasattr(mx, "Device")
WHERE = "device" if IS_2 else "ctx"
"""The name of the argument that says where; 2.0 still takes ``ctx``, with a DeprecationWarning in places."""

QUICK = ctypes.PyDLL(_LIB._name)
"""MXNet's library, for calls that answer at once."""
get_context = QUICK.MXNDArrayGetContext
_dtype = QUICK.MXNDArrayGetDType
_shapes = QUICK.MXSetIsNumpyShape
_recording = QUICK.MXAutogradIsRecording
allocate = _new_alloc_handle
"""MXNet's own, ``(shape, native, delay, dtype)``: without delay a full device says so at the call."""

BFLOAT16: Any = _DTYPE_MX_TO_NP[12]
"""MXNet's own dtype for bfloat16: a NumPy structure that holds the bits."""
CODES: dict[str, int] = {np.dtype(kind).name: code for code, kind in _DTYPE_MX_TO_NP.items() if 0 <= code < 12}
CODES["bfloat16"] = 12
NAMES = {code: name for name, code in CODES.items()}
"""MXNet's number for a dtype -> its array-API name; 1.9 lacks int16, uint16, uint32 and uint64."""


def where(x: Any) -> int:
    """Return the place of an array as one number: MXNet's kind of device, and its index times 2**32."""
    found = c_int64()
    get_context(x.handle, byref(found), byref(found, 4))
    return found.value


def place_number(native: Any) -> int:
    """Return the same number for one of MXNet's device objects."""
    return int(native.device_typeid) | int(native.device_id) << 32


def dtype_code(x: Any) -> int:
    """Return MXNet's number for an array's dtype."""
    found = c_int()
    _dtype(x.handle, byref(found))
    return found.value


def is_recording() -> bool:
    """Whether this thread is inside ``autograd.record()``; MXNet's own question costs four times as much."""
    found = c_bool()
    _recording(byref(found))
    return found.value


class numpy_shapes:
    """A block in which ``()`` and zero-size shapes mean what they mean in NumPy, in this thread."""

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before = c_int()
        _shapes(1, byref(self._before))

    def __exit__(self, *failure: object) -> None:
        if not self._before.value:
            _shapes(0, byref(c_int()))


def address(x: Any) -> int:
    """Return where an array's values start in memory, once pending work on it is done."""
    x.wait_to_read()
    found = c_void_p()
    check_call(_LIB.MXNDArrayGetData(x.handle, byref(found)))
    return found.value or 0
