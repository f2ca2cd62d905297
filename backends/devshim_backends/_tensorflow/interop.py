"""DLPack: other frameworks over TensorFlow's memory, and TensorFlow over theirs.

Requirements this module answers:

* Never an abort.  TensorFlow ends the process when a string tensor is exported, and when an operator reads an imported
  tensor whose memory is not aligned to 64 bytes, as most of NumPy's and every other slice is (2.16 to 2.21:
  ``Check failed: IsAligned()``).  Both are looked at first: the capsule's header is read before TensorFlow gets it.
* The true device: a simulated card's memory is the host's, and ``CPU:3`` is no device of anybody else.
* 2.16 to 2.19 have no ``__dlpack__``, and no version takes an object that has one: `tf.experimental.dlpack` knows
  capsules alone.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, ClassVar

import tensorflow as tf

from devshim import _refusals
from devshim.device import CPU, Device
from devshim.errors import ConversionError
from devshim_backends._tensorflow.tensors import NAMES, TensorflowTensors

if TYPE_CHECKING:
    from devshim.backend import Tensor

_ALIGNMENT = 64
_HOST, _CUDA, _ROCM = 1, 2, 10
_CODES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}
"""DLPack's DLDataTypeCode (dlpack.h)."""


class _Header(ctypes.Structure):
    """DLPack's DLTensor."""

    _fields_: ClassVar[Any] = [
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
    ]


class Export:
    """What `to_dlpack` returns: a tensor's memory with the protocol that TensorFlow lacked before 2.20."""

    def __init__(self, tensor: Tensor, device: Device) -> None:
        self._tensor = tensor
        self._device = device

    def __dlpack_device__(self) -> tuple[int, int]:
        """The DLPack device type and number."""
        if self._device is CPU:
            return (_HOST, 0)
        return (_CUDA if tf.test.is_built_with_cuda() else _ROCM, self._device.index)

    def __dlpack__(self, *, stream: Any = None, copy: bool | None = None, **_: Any) -> Any:
        """An unversioned capsule; work pending on a card is waited for."""
        if copy:
            raise BufferError("a copy has to be made before the export")
        if self._device is not CPU:
            tf.test.experimental.sync_devices()
        return tf.experimental.dlpack.to_dlpack(self._tensor)


class TensorflowInterop(TensorflowTensors):
    """The room of interop."""

    def to_dlpack(self, x: Tensor) -> Any:
        if self.is_tracer(x):
            raise _refusals.tracing(self, "convert", "convert before or after the compiled function")
        self._require_dense(x, "DLPack")
        if self.dtype_name(x) not in NAMES:
            raise ConversionError(f"DLPack has no dtype for TensorFlow's {self.dtype_name(x)}")
        where, value = self.device_of(x), tf.convert_to_tensor(x)
        if not self.is_card(where):
            where = CPU
            if not value.backing_device.endswith("CPU:0"):
                with tf.device("/CPU:0"):
                    value = value._copy()  # shares the memory, under the host's name
        return Export(value, where)

    def from_dlpack(self, source: Any) -> Tensor:
        try:
            capsule = source.__dlpack__()
            header = _header(capsule)
        except (AttributeError, BufferError, RuntimeError, TypeError, ValueError) as error:
            raise ConversionError(f"{type(source).__name__} does not export its memory: {error}") from error
        name = self._admitted(header)
        try:
            made = tf.experimental.dlpack.from_dlpack(capsule)
        except (tf.errors.OpError, RuntimeError, ValueError) as error:
            raise ConversionError(f"TensorFlow does not take this memory: {error}") from error
        if made.dtype.name != name:
            raise ConversionError(f"TensorFlow reads this {name} memory as {made.dtype.name}")
        return made

    def _admitted(self, header: Any) -> str:
        """The dtype's name, if TensorFlow can live on this memory; else `ConversionError`."""
        kind = _CODES.get(header.code, "")
        name = "bool" if kind == "bool" else f"{kind}{header.bits}"
        if name not in NAMES or header.lanes != 1:
            raise ConversionError(f"TensorFlow takes no memory of DLPack type {header.code} with {header.bits} bits")
        card = header.device_type in (_CUDA, _ROCM) and not self.simulated
        if header.device_type != _HOST and not (card and header.device_id < self.count("gpu")):
            raise ConversionError(f"TensorFlow has no DLPack device ({header.device_type}, {header.device_id})")
        shape = header.shape[: header.ndim]
        if 0 in shape:
            return name
        if header.strides and not _is_contiguous(shape, header.strides[: header.ndim]):
            raise ConversionError("TensorFlow's tensors are contiguous, and this memory has other strides")
        if ((header.data or 0) + header.byte_offset) % _ALIGNMENT:
            raise ConversionError(f"TensorFlow's operators need memory aligned to {_ALIGNMENT} bytes, and this is not")
        return name


def _header(capsule: Any) -> Any:
    """The DLTensor at the start of an unversioned capsule."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return _Header.from_address(pointer(capsule, b"dltensor"))


def _is_contiguous(shape: list[int], strides: list[int]) -> bool:
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True
