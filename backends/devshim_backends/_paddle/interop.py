"""Sharing memory with other frameworks through DLPack.

Requirements this module answers:

* What goes out and what comes in is looked at in the capsule itself and compared with the tensor.  Paddle 2.6
  exports bool as uint8 and a strided view as if it were contiguous, reads a strided capsule as if it were contiguous,
  and takes negative strides for sizes: wrong values, without an error.  3.x does the first three right.
* ``__dlpack_device__`` of a Paddle tensor names the host ``(1, None)``, which JAX refuses; here it has an index.
* uint16, uint32 and uint64 are refused: Paddle 3.x takes them in, and can then not even copy them.
* Never a writable tensor over memory whose owner says that it is read-only.
"""

from __future__ import annotations

import ctypes
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import paddle
from paddle.utils import dlpack

from devshim.device import CPU
from devshim.errors import ConversionError
from devshim_backends._paddle.tensors import PaddleTensors

if TYPE_CHECKING:
    from devshim.backend import Tensor
    from devshim.device import Device

_KINDS = {"cpu": 1, "gpu": 2}
"""devshim's kind -> DLPack's DLDeviceType, of those that Paddle exports."""

_STRIDED = "FLAGS_use_stride_kernel"

_CODES = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "complex": 5, "bool": 6}


class PaddleInterop(PaddleTensors):
    """The room of interop."""

    def to_dlpack(self, x: Tensor) -> Any:
        self._require_dense(x, "be shared")
        device = self.device_of(x)
        if device.kind not in _KINDS:
            raise ConversionError(f"PaddlePaddle does not export {device.kind} tensors through DLPack")
        return _Export(self, x.detach(), device)  # gradients stay here; a Parameter becomes a plain tensor

    def from_dlpack(self, source: Any) -> Tensor:
        if isinstance(source, np.ndarray) and not source.flags.writeable:
            raise _refused("PaddlePaddle has no read-only tensors, and the array offered is read-only")
        try:
            capsule = source.__dlpack__()
            offered = _look(capsule)
            if not (offered.is_contiguous() or paddle.get_flags(_STRIDED)[_STRIDED]):
                raise _refused(f"{_STRIDED} is off, and the memory offered is not contiguous")
            made = dlpack.from_dlpack(capsule)
        except ConversionError:
            raise
        except Exception as error:  # BufferError, NotImplementedError, TypeError, ...: the producer's or Paddle's
            raise _refused(f"PaddlePaddle cannot share the memory of this {type(source).__name__}: {error}") from error
        if not offered.is_same_as(self, made):
            raise _refused("PaddlePaddle took the memory offered for another dtype, shape or order of values")
        return made


class _Export:
    """A tensor as DLPack wants it: with a device that has a number, and checked on its way out."""

    def __init__(self, backend: PaddleInterop, x: Tensor, device: Device) -> None:
        self._backend = backend
        self._x = x
        self._device = device
        self._checked = self._capsule()  # what Paddle cannot export is refused here, not in the consumer

    def __dlpack_device__(self) -> tuple[int, int]:
        return (_KINDS[self._device.kind], self._device.index)

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
        if self._device is not CPU and stream != -1:  # -1 says that the consumer does without
            self._backend.synchronize(self._device)
        if options.get("copy"):
            raise BufferError("this exporter shares memory, and a copy was asked for")
        capsule, self._checked = self._checked or self._capsule(), None
        return capsule

    def _capsule(self) -> Any:
        try:
            capsule = dlpack.to_dlpack(self._x)
        except Exception as error:
            raise _refused(f"PaddlePaddle cannot export this tensor: {error}") from error
        if not _look(capsule).is_same_as(self._backend, self._x):
            raise _refused(f"PaddlePaddle exports this {self._backend.dtype_name(self._x)} tensor as something else")
        return capsule


class _Tensor(ctypes.Structure):
    """DLTensor of dlpack.h, the same in every version of the protocol."""

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


class _Form:
    """What a capsule says about the memory it offers; read before anybody consumes the capsule."""

    def __init__(self, header: _Tensor) -> None:
        self.dtype = (header.code, header.bits, header.lanes)
        self.shape = tuple(header.shape[axis] for axis in range(header.ndim))
        self.strides = tuple(header.strides[axis] for axis in range(header.ndim)) if header.strides else None
        self.address = (header.data or 0) + header.byte_offset

    def is_contiguous(self) -> bool:
        return self.strides is None or self.strides == _c_order(self.shape)

    def is_same_as(self, backend: PaddleTensors, x: Tensor) -> bool:
        """Whether a tensor has this dtype and shape, and reads the same values at the same address."""
        if self.dtype != _dtype(backend.dtype_name(x)) or self.shape != tuple(x.shape):
            return False
        if prod(self.shape) == 0:
            return True
        here, there = _steps(self.shape, self.strides), _steps(self.shape, tuple(x.strides))
        return here == there and self.address == x.data_ptr()


def _steps(shape: tuple[int, ...], strides: tuple[int, ...] | None) -> tuple[int, ...]:
    """The strides of the axes along which there is anything to step over; without strides, those of C order."""
    return tuple(step for size, step in zip(shape, strides or _c_order(shape), strict=True) if size > 1)


def _c_order(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _dtype(name: str) -> tuple[int, int, int]:
    """DLPack's ``(code, bits, lanes)`` for a dtype's name."""
    family = name.rstrip("0123456789")
    return (_CODES.get(family, -1), int(name[len(family) :] or 8), 1)


_python = ctypes.PyDLL(None)  # of our own: argument types set on ctypes.pythonapi would be everybody's
_python.PyCapsule_GetPointer.restype = ctypes.c_void_p
_python.PyCapsule_GetPointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
_python.PyCapsule_IsValid.argtypes = (ctypes.py_object, ctypes.c_char_p)


def _look(capsule: Any) -> _Form:
    if not _python.PyCapsule_IsValid(capsule, b"dltensor"):
        raise _refused("the object offered gives no DLPack capsule, or one that was used already")
    form = _Form(_Tensor.from_address(_python.PyCapsule_GetPointer(capsule, b"dltensor")))
    if form.strides is not None and min(form.strides, default=0) < 0:
        raise _refused("PaddlePaddle has no negative strides, and the memory offered has")
    if form.dtype[0] == _CODES["uint"] and form.dtype[1] > 8:
        raise _refused(f"PaddlePaddle does not compute with uint{form.dtype[1]}")
    return form


def _refused(why: str) -> ConversionError:
    return ConversionError(why, "let it be copied")
