"""Direct calls into the C interface of MXNet, and the differences between 1.9 and 2.0.

Requirements that this module meets:

* Querying the device of an array must cost less than MXNet's own ``x.ctx``, which builds a context object. It is one
  call that fills one 64-bit integer, the *device code* (the kind in the low half, the index in the high half).
* The shapes ``()`` and ``(0, 3)`` exist in MXNet only while "NumPy shape semantics" are on. That is a setting of the
  thread: it starts off in 1.9 and, in 2.0, in every thread except the first. It is switched on around a call and then
  restored, never left on.

MXNet's functions are loaded again through ``PyDLL``: MXNet's own ``CDLL`` releases and reacquires the interpreter lock,
which costs more than these calls. Calls that may wait for other work go through MXNet's own library object.
"""

from __future__ import annotations

import ctypes
import math
from ctypes import byref, c_bool, c_int, c_int64, c_void_p
from typing import TYPE_CHECKING, Any

import mxnet as mx
import numpy as np
from mxnet.base import _LIB, NDArrayHandle, check_call
from mxnet.ndarray.ndarray import _DTYPE_MX_TO_NP, _new_alloc_handle

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_Array = mx.nd.NDArray

NATIVE: Any = type(mx.cpu())
"""MXNet's class for a device: ``mx.Context`` in 1.9, ``mx.Device`` in 2.0."""
IS_2 = hasattr(mx, "Device")
DEVICE_ARGUMENT = "device" if IS_2 else "ctx"
"""The name of the device argument; 2.0 still accepts ``ctx``, in places with a DeprecationWarning."""

FAST_LIB = ctypes.PyDLL(_LIB._name)
"""MXNet's library, for calls that return immediately."""
get_context = FAST_LIB.MXNDArrayGetContext
_dtype = FAST_LIB.MXNDArrayGetDType
_shapes = FAST_LIB.MXSetIsNumpyShape
_recording = FAST_LIB.MXAutogradIsRecording
allocate = _new_alloc_handle
"""MXNet's own function, ``(shape, native, delay, dtype)``; without delay, a full device raises at the call."""

BFLOAT16: Any = _DTYPE_MX_TO_NP[12]
"""MXNet's own dtype for bfloat16: a NumPy structured dtype that contains the bits."""
CODES: dict[str, int] = {np.dtype(kind).name: code for code, kind in _DTYPE_MX_TO_NP.items() if 0 <= code < 12}
CODES["bfloat16"] = 12
NAMES = {code: name for name, code in CODES.items()}
"""MXNet's number for a dtype -> its array-API name; 1.9 lacks int16, uint16, uint32 and uint64."""


def device_code(x: Any) -> int:
    """Return the device code of an array: MXNet's number for the kind of device, plus the index times 2**32."""
    code = c_int64()
    get_context(x.handle, byref(code), byref(code, 4))
    return code.value


def native_code(native: Any) -> int:
    """Return the device code of an MXNet device object."""
    return int(native.device_typeid) | int(native.device_id) << 32


def dtype_code(x: Any) -> int:
    """Return MXNet's number for an array's dtype."""
    code = c_int()
    _dtype(x.handle, byref(code))
    return code.value


def iter_arrays(values: Iterable[Any]) -> Iterator[Any]:
    """Yield the arrays among values, and in lists, tuples and dictionaries among them."""
    for value in values:
        if isinstance(value, _Array):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from iter_arrays(value)
        elif isinstance(value, dict):
            yield from iter_arrays(value.values())


def is_recording() -> bool:
    """Return True if this thread is inside ``autograd.record()``; MXNet's own function costs four times as much."""
    recording = c_bool()
    _recording(byref(recording))
    return recording.value


class numpy_shapes:
    """A context in which ``()`` and zero-size shapes mean what they mean in NumPy, in this thread."""

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before = set_numpy_shapes()

    def __exit__(self, *failure: object) -> None:
        if not self._before:
            unset_numpy_shapes()


def set_numpy_shapes() -> int:
    """Begin what `numpy_shapes` does; return 1 if it was so already, so that `unset_numpy_shapes` must not follow."""
    before = c_int()
    _shapes(1, byref(before))
    return before.value


def unset_numpy_shapes() -> None:
    """End what `set_numpy_shapes` began."""
    _shapes(0, byref(c_int()))


def is_exact(value: float) -> bool:
    """Return True if MXNet passes a number to an operator exactly: 1.9 reads other fractions imprecisely from text."""
    return IS_2 or type(value) is not float or (value.is_integer() and abs(value) < 2**53) or not math.isfinite(value)


class ArrayMemory:
    """The memory of an array, in NumPy's array interface; pending work on the array must be done.

    It has its own handle to the memory, because a move of a parameter gives the array's handle other memory.
    """

    __slots__ = ("__array_interface__", "_x")

    def __init__(self, x: Any, shape: tuple[int, ...], typestr: str) -> None:
        handle, address = NDArrayHandle(), c_void_p()
        check_call(FAST_LIB.MXNDArrayDetach(x.handle, byref(handle)))
        self._x = _Array(handle)
        check_call(FAST_LIB.MXNDArrayGetData(handle, byref(address)))
        self.__array_interface__ = {"data": (address.value, False), "shape": shape, "typestr": typestr, "version": 3}
