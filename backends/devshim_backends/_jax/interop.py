"""Sharing memory with other frameworks through DLPack.

Traps mended here:

* With x64 off, ``from_dlpack`` gives int32 for int64 and float32 for float64: see `wide`.
* Memory that is not 64-byte aligned is copied with a line on stderr by JAX 0.5 to 0.8, whatever ``copy=False`` says,
  and shared by older ones, whose compiled code expects the alignment.  So the address is read out of the capsule
  before JAX sees it, and what is not aligned is refused: it goes through the host.
* Paddle gives ``None`` for a CPU's index, which JAX does not take.
* JAX exports every CPU device as ``(CPU, 0)``: a simulated GPU would come back as the host, so it exports nothing.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import jax

from devshim.backend import Backend
from devshim.device import CPU
from devshim.errors import ConversionError
from devshim_backends._jax.creation import NAMES
from devshim_backends._jax.devices import concrete
from devshim_backends._jax.runtime import JaxRuntime
from devshim_backends._jax.tensors import ALIGNMENT, enable_x64

if TYPE_CHECKING:
    from devshim.backend import Tensor

_HOST = (1, 3, 11)
"""DLPack's device types of host memory: plain, and pinned for CUDA or ROCm."""

_THROUGH_HOST = "let the values be copied through the host"


class _Tensor(ctypes.Structure):
    """DLPack's ``DLTensor``, with which a capsule's memory begins (dlpack.h)."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_uint8 * 4),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.argtypes = (ctypes.py_object, ctypes.c_char_p)
_pointer_of.restype = ctypes.c_void_p


class _Capsule:
    """An exporter of one capsule in host memory: JAX takes no bare ones."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **options: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


class JaxInterop(JaxRuntime, Backend):
    """The room "interop" of the JAX adapter."""

    def to_dlpack(self, x: Tensor) -> Any:
        if concrete(x) is not x:
            raise self._untraceable("convert")
        device = self.device_of(x)
        if device is not CPU and device.index < self.shown:
            raise ConversionError(f"{device} is simulated, and its memory is not shared", _THROUGH_HOST)
        if self.dtype_name(x) not in NAMES:
            raise ConversionError(f"DLPack has no type for a JAX array of {self.dtype_name(x)}", "cast it first")
        return x

    def from_dlpack(self, source: Any) -> Tensor:
        if self.compiling():
            raise self._untraceable("convert")
        try:
            return _import(source)
        except Exception as error:  # whatever the exporter or XLA objects to
            told = str(error).partition("\n")[0] or type(error).__name__
            raise ConversionError(f"JAX cannot share this memory: {told}", _THROUGH_HOST) from error


def _import(source: Any) -> Tensor:
    kind, _ = source.__dlpack_device__()
    if int(kind) not in _HOST:
        with enable_x64(True):
            return jax.dlpack.from_dlpack(source)
    capsule = source.__dlpack__()
    address = _address(capsule)
    if address % ALIGNMENT:
        raise BufferError(f"it needs an alignment of {ALIGNMENT} bytes, and this memory lacks it")
    with enable_x64(True):
        x = jax.dlpack.from_dlpack(_Capsule(capsule))
    if x.size and x.unsafe_buffer_pointer() != address:
        raise BufferError("it made a copy")
    return x


def _address(capsule: Any) -> int:
    """Where the first element in a capsule nobody has taken yet is; 0 where it has no memory."""
    tensor = ctypes.cast(_pointer_of(capsule, b"dltensor"), ctypes.POINTER(_Tensor)).contents
    return int(tensor.data or 0) + int(tensor.byte_offset)
