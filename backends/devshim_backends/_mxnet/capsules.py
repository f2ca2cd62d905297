"""DLPack's structure and the interpreter's capsules, as far as sharing MXNet's memory needs them.

The interpreter's functions are fetched through library objects of our own: those of ``ctypes.pythonapi`` are shared by
the whole process, MXNet's own destructor relies on their default prototypes, and other libraries set theirs.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from mxnet.base import _LIB, check_call

from devshim_backends._mxnet.native import CODES

NAME, USED = b"dltensor", b"used_dltensor"
CPU, CUDA, CUDA_HOST = 1, 2, 3
INT, UINT, FLOAT, BFLOAT, BOOL = 0, 1, 2, 4, 6
FORMS = {"bool": (BOOL, 8), "bfloat16": (BFLOAT, 16)}
FORMS |= {f"{kind}{bits}": (code, bits) for kind, code in (("int", INT), ("uint", UINT)) for bits in (8, 16, 32, 64)}
FORMS |= {f"float{bits}": (FLOAT, bits) for bits in (16, 32, 64)}
READABLE = {form: name for name, form in FORMS.items() if name in CODES}


class DLTensor(ctypes.Structure):
    """DLTensor of dlpack.h, the same in every version of the protocol; a DLManagedTensor starts with one."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


PYTHON = ctypes.PyDLL(None)
_Destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
PYTHON.PyCapsule_New.restype = ctypes.py_object
PYTHON.PyCapsule_New.argtypes = (ctypes.c_void_p, ctypes.c_char_p, _Destructor)
for _function, _returned in (
    (PYTHON.PyCapsule_GetPointer, ctypes.c_void_p),
    (PYTHON.PyCapsule_IsValid, ctypes.c_int),
):
    _function.restype = _returned
    _function.argtypes = (ctypes.py_object, ctypes.c_char_p)
PYTHON.PyCapsule_SetName.argtypes = (ctypes.py_object, ctypes.c_char_p)
PYTHON.PyCapsule_SetDestructor.argtypes = (ctypes.py_object, ctypes.c_void_p)


@_Destructor  # type: ignore[untyped-decorator]
def forget(capsule: int) -> None:
    """Free what a capsule offers if nobody took it; the capsule is being destroyed, so it must not be referenced."""
    name = _raw.PyCapsule_GetName(capsule)
    if name == NAME:
        check_call(_LIB.MXNDArrayCallDLPackDeleter(ctypes.c_void_p(_raw.PyCapsule_GetPointer(capsule, NAME))))


_raw = ctypes.PyDLL(None)
_raw.PyCapsule_GetName.restype = ctypes.c_char_p
_raw.PyCapsule_GetName.argtypes = (ctypes.c_void_p,)
_raw.PyCapsule_GetPointer.restype = ctypes.c_void_p
_raw.PyCapsule_GetPointer.argtypes = (ctypes.c_void_p, ctypes.c_char_p)


class HostArray:
    """A NumPy array as a producer of any dtype MXNet can read: NumPy 1.23 exports no bool, and none bfloat16."""

    def __init__(self, array: np.ndarray) -> None:
        self._bytes = array.view(np.dtype(f"u{array.itemsize}"))
        self._form = FORMS[array.dtype.name]

    def __dlpack__(self) -> Any:
        capsule = self._bytes.__dlpack__()
        tensor = read(capsule)
        tensor.code, tensor.bits = self._form
        return capsule


def read(capsule: Any) -> DLTensor:
    """Return the structure a fresh capsule points to; what is changed in it, its consumer sees."""
    return DLTensor.from_address(PYTHON.PyCapsule_GetPointer(capsule, NAME))
