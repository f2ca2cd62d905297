"""DLPack capsules for the memory of MXNet arrays.

MXNet 1.9 does not make or accept capsules, and 2.0 handles only those that it made.

The interpreter's functions are fetched through a separate library object, as in `transfers.dlpack`. The functions
that are also called while a capsule is being destroyed take its address, because it must not be referenced then.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from mxnet.base import _LIB, check_call

from devshim.transfers import dlpack

_NAME, _USED = b"dltensor", b"used_dltensor"
_Destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_python = ctypes.PyDLL(None)
_python.PyCapsule_New.restype = ctypes.py_object
_python.PyCapsule_New.argtypes = (ctypes.c_void_p, ctypes.c_char_p, _Destructor)
_python.PyCapsule_GetPointer.restype = ctypes.c_void_p
_python.PyCapsule_GetPointer.argtypes = _python.PyCapsule_IsValid.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
_python.PyCapsule_SetName.argtypes = (ctypes.py_object, ctypes.c_char_p)
_python.PyCapsule_SetDestructor.argtypes = (ctypes.py_object, ctypes.c_void_p)


def make_capsule(managed: ctypes.c_void_p) -> Any:
    """Return a capsule over a DLManagedTensor that MXNet made."""
    return _python.PyCapsule_New(managed, _NAME, _free_unused)


@_Destructor  # type: ignore[untyped-decorator]
def _free_unused(capsule: int) -> None:
    """Free the memory that a capsule offers if no consumer took it."""
    if _python.PyCapsule_IsValid(capsule, _NAME):
        check_call(_LIB.MXNDArrayCallDLPackDeleter(ctypes.c_void_p(_python.PyCapsule_GetPointer(capsule, _NAME))))


def mark_used(capsule: Any) -> None:
    """Mark a capsule as consumed, as the protocol requires: from now on the consumer calls the deleter."""
    _python.PyCapsule_SetName(capsule, _USED)
    _python.PyCapsule_SetDestructor(capsule, None)


def set_dtype(tensor: dlpack.DLTensor, dtype: str) -> None:
    """Write a dtype into the structure in a capsule."""
    tensor.code, tensor.bits, tensor.lanes = dlpack.FORMS[dtype]


class HostArray:
    """A NumPy array as a producer of any dtype that MXNet can read.

    NumPy 1.23 does not export bool, and no NumPy exports bfloat16.
    """

    def __init__(self, array: np.ndarray) -> None:
        self._bytes = array.view(np.dtype(f"u{array.itemsize}"))
        self._dtype = array.dtype.name

    def __dlpack__(self) -> Any:
        capsule = self._bytes.__dlpack__()
        set_dtype(dlpack.managed_tensor(capsule).tensor, self._dtype)
        return capsule
