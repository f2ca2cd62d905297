"""Sharing memory with other frameworks through DLPack.

Requirements this module answers:

* bool crosses.  MXNet says "unsigned, 1 bit" of a bool, everybody else "bool, 8 bits" (kDLBool came later): the
  bytes are the same, so the label is exchanged on the way in and out.
* Nothing is read from the wrong place: MXNet ignores ``byte_offset``, so it is added to the address; pinned host
  memory is refused, so it is called host memory, which it is; and a CPU's number (TensorFlow's ``CPU:1``) is dropped,
  because ``cpu(1)`` is a simulated card here.
* What MXNet cannot express (strides, int16 in 1.9, complex) is refused before it looks at it.
* 1.9 has no ``__dlpack__``, and 2.0's takes none of the arguments of today's protocol: an exporter of our own has.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import mxnet as mx
from mxnet.base import _LIB, NDArrayHandle, check_call

from devshim import _refusals
from devshim.errors import ConversionError
from devshim_backends._mxnet.capsules import (
    BOOL,
    CPU,
    CUDA,
    CUDA_HOST,
    FORMS,
    NAME,
    PYTHON,
    READABLE,
    UINT,
    USED,
    DLTensor,
    forget,
    read,
)
from devshim_backends._mxnet.native import NAMES, dtype_code, numpy_shapes
from devshim_backends._mxnet.tensors import MxnetTensors

if TYPE_CHECKING:
    from devshim.backend import Tensor


class _Exported:
    """An MXNet array as a producer of today's protocol; a simulated card's memory is the host's, and says so."""

    def __init__(self, x: Tensor, device: tuple[int, int]) -> None:
        self._x = x
        self._device = device

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device

    def __dlpack__(
        self,
        *,
        stream: object = None,
        max_version: object = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        if (dl_device is not None and tuple(dl_device) != self._device) or copy:
            raise BufferError("this array can only be shared where it is")
        check_call(_LIB.MXNDArrayWaitToWrite(self._x.handle))
        managed = ctypes.c_void_p()
        check_call(_LIB.MXNDArrayToDLPack(self._x.handle, ctypes.byref(managed)))
        tensor = DLTensor.from_address(managed.value or 0)
        tensor.device_type, tensor.device_id = self._device
        tensor.code, tensor.bits = FORMS[NAMES[dtype_code(self._x)]]
        return PYTHON.PyCapsule_New(managed, NAME, forget)


class MxnetInterop(MxnetTensors):
    """The room of interop."""

    def to_dlpack(self, x: Tensor) -> Any:
        if self.is_tracer(x):
            raise _refusals.tracing(self, "convert", "convert before or after calling the block")
        if isinstance(x, mx.nd.sparse.BaseSparseNDArray):
            raise ConversionError("DLPack has no sparse arrays", "call x.tostype('default') first")
        device = self.device_of(x)
        real = device.kind == "gpu" and not self.simulated
        return _Exported(x, (CUDA, device.index) if real else (CPU, 0))

    def from_dlpack(self, source: Any) -> Tensor:
        try:
            capsule = source.__dlpack__()
            if not PYTHON.PyCapsule_IsValid(capsule, NAME):
                raise BufferError("it gives no capsule that MXNet could read")
            return self._taken(capsule)
        except ConversionError:
            raise
        except Exception as error:  # producers raise BufferError, TypeError, RuntimeError, ...
            raise ConversionError(
                f"MXNet cannot share the memory of this {type(source).__name__}: {error}", "let it be copied"
            ) from error

    def _taken(self, capsule: Any) -> Tensor:
        """The array over a capsule's memory; the capsule is marked as used, as the protocol wants."""
        managed = ctypes.c_void_p(PYTHON.PyCapsule_GetPointer(capsule, NAME))
        tensor = read(capsule)
        why = _why_not(tensor)
        if why is not None:
            raise ConversionError(f"MXNet cannot share this memory: {why}", "let it be copied")
        _adapt(tensor)
        handle = NDArrayHandle()
        create = getattr(_LIB, "MXNDArrayFromDLPackEx", None) or _LIB.MXNDArrayFromDLPack
        with numpy_shapes():
            check_call(create(managed, ctypes.c_bool(False), ctypes.byref(handle)))
        PYTHON.PyCapsule_SetName(capsule, USED)
        PYTHON.PyCapsule_SetDestructor(capsule, None)  # from here on MXNet calls the deleter
        return mx.np.ndarray(handle)


def _why_not(tensor: DLTensor) -> str | None:
    if (tensor.code, tensor.bits) not in READABLE or tensor.lanes != 1:
        return f"MXNet {mx.__version__} has no dtype of kind {tensor.code}, {tensor.bits} bits, {tensor.lanes} lanes"
    if tensor.device_type not in (CPU, CUDA, CUDA_HOST):
        return f"it is on a device of DLPack's kind {tensor.device_type}"
    if not _contiguous(tensor):
        return "MXNet's arrays are C-contiguous, and it is not"
    return None


def _contiguous(tensor: DLTensor) -> bool:
    """Whether the strides say what no strides say; those of axes with one element, or of no elements, do not matter."""
    shape = tensor.shape[: tensor.ndim]
    if not tensor.strides or 0 in shape:
        return True
    step = 1
    for axis in reversed(range(tensor.ndim)):
        if shape[axis] != 1 and tensor.strides[axis] != step:
            return False
        step *= shape[axis]
    return True


def _adapt(tensor: DLTensor) -> None:
    """Say the same about the memory in the words of MXNet's old DLPack."""
    if tensor.code == BOOL:
        tensor.code, tensor.bits = UINT, 1
    if tensor.device_type != CUDA:
        tensor.device_type, tensor.device_id = CPU, 0
    tensor.data = (tensor.data or 0) + tensor.byte_offset
    tensor.byte_offset = 0
    tensor.strides = None
