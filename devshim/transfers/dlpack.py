"""DLPack capsules (dlpack.h): inspect them before a framework consumes them, and export today's protocol.

Requirements of this module:

* Frameworks abort on some capsules and misread others, each in its own way. So capsules are read here, once for all
  frameworks (`read`), and each adapter decides what to refuse.
* Reading does not consume: the capsule stays valid for its consumer.
* Other libraries are not affected. The interpreter's functions come from a separate library object: types set on
  those of ``ctypes.pythonapi`` apply to the whole process, and MXNet's own capsule destructor relies on the defaults.

This module imports no framework, and `import devshim` does not load it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from struct import Struct, unpack
from typing import Any, NamedTuple

__all__ = [
    "CPU",
    "CUDA",
    "CUDA_HOST",
    "FORMS",
    "HOST",
    "ROCM",
    "SMALL",
    "DLManagedTensor",
    "DLManagedTensorVersioned",
    "DLTensor",
    "Exporter",
    "Ordered",
    "TensorInfo",
    "ValidatingExporter",
    "data_address",
    "managed_tensor",
    "normalize_strides",
    "read",
    "set_dtype",
    "structure_address",
]

CPU, CUDA, CUDA_HOST, ROCM, ROCM_HOST = 1, 2, 3, 10, 11
"""The DLDeviceType values that adapters distinguish; `devshim.devices.parsing` reads all of them."""

HOST = frozenset({CPU, CUDA_HOST, ROCM_HOST})
"""Host memory: plain, and pinned for CUDA or ROCm."""

_FAMILIES = (("int", 0, (8, 16, 32, 64)), ("uint", 1, (8, 16, 32, 64)), ("float", 2, (16, 32, 64)))
FORMS = {f"{family}{bits}": (code, bits, 1) for family, code, widths in _FAMILIES for bits in widths}
"""A dtype's array-API name -> DLDataType's ``(code, bits, lanes)``."""
FORMS |= {"bool": (6, 8, 1), "bfloat16": (4, 16, 1), "complex64": (5, 64, 1), "complex128": (5, 128, 1)}

SMALL = {"float8_e4m3fn": (10, 8, 1), "float8_e5m2": (12, 8, 1)}
"""The same for 8-bit floats, for consumers that support them; `read` describes them by their numbers."""
_NAMES = {form: name for name, form in FORMS.items()}
_READ_ONLY = 1  # DLPACK_FLAG_BITMASK_READ_ONLY
_ONLY_IN_PLACE = "this memory can only be shared where it is"
_UNREADABLE = "its DLPack capsule cannot be read, or was already used"


class DLTensor(ctypes.Structure):
    """DLTensor, the same in every version of the protocol; its nested device and dtype are flattened."""

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


_TENSOR = Struct("@PiiiBBHPPQ")  # the memory layout of the fields of `DLTensor`

_OFFSET, _word = DLTensor.byte_offset.offset, ctypes.c_uint64.from_address


class DLManagedTensor(ctypes.Structure):
    """DLManagedTensor, to which a capsule named ``dltensor`` points."""

    _fields_ = (("tensor", DLTensor), ("manager_ctx", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class DLManagedTensorVersioned(ctypes.Structure):
    """DLManagedTensorVersioned of version 1.0, to which a capsule named ``dltensor_versioned`` points."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    )


_python = ctypes.PyDLL(None)
_pointer, _is_named = _python.PyCapsule_GetPointer, _python.PyCapsule_IsValid
_pointer.restype, _is_named.restype = ctypes.c_void_p, ctypes.c_int
_pointer.argtypes = _is_named.argtypes = (ctypes.py_object, ctypes.c_char_p)


class TensorInfo(NamedTuple):
    """The description of the memory that a capsule offers.

    Attributes:
        device: DLPack's device type and number.
        dtype: The array-API name, or the numbers of DLDataType as text for a dtype without a name.
        shape: The sizes of the axes.
        strides: In elements, one for each axis; the strides of C order if the capsule has none.
        address: The address of the first element, including ``byte_offset``; 0 without memory.
        read_only: True if the memory must not be written; None if the capsule cannot tell (it is unversioned).
    """

    device: tuple[int, int]
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    address: int
    read_only: bool | None

    @property
    def itemsize(self) -> int:
        """Return the bytes of an element; 1 for a dtype without a name, which every consumer refuses."""
        return (FORMS.get(self.dtype) or SMALL.get(self.dtype) or (0, 8, 1))[1] // 8

    @property
    def has_negative_strides(self) -> bool:
        """Return True if some axis runs backwards through the memory."""
        return any(step < 0 for step in self.strides)

    @property
    def is_contiguous(self) -> bool:
        """Return True if the elements are in C order without gaps; axes of one element do not matter."""
        if 0 in self.shape:
            return True
        steps = zip(self.shape, self.strides, _c_order(self.shape), strict=True)
        return all(size == 1 or step == expected for size, step, expected in steps)


def managed_tensor(capsule: Any, *, versioned: bool = False) -> Any:
    """Return the structure that a capsule points to; the capsule's consumer sees changes to it.

    Args:
        capsule: The result of a producer's ``__dlpack__``; the structure is valid until the capsule is consumed.
        versioned: True to accept a `DLManagedTensorVersioned` as well as a `DLManagedTensor`. A producer must not give
            one unless ``max_version`` asked for it.

    Raises:
        BufferError: The object is not a DLPack capsule, or was consumed already.
    """
    if _is_named(capsule, b"dltensor"):
        return DLManagedTensor.from_address(_pointer(capsule, b"dltensor"))
    if versioned and _is_named(capsule, b"dltensor_versioned"):
        return DLManagedTensorVersioned.from_address(_pointer(capsule, b"dltensor_versioned"))
    raise BufferError(_UNREADABLE)


def read(capsule: Any, *, versioned: bool = False) -> TensorInfo:
    """Return what a capsule offers without consuming it; the arguments are those of `managed_tensor`.

    Raises:
        BufferError: As `managed_tensor`; or elements without memory (PyTorch 2.13 exports fake tensors like that).
    """
    found = managed_tensor(capsule, versioned=versioned)
    # Read all bytes in one call: reading the fields through ctypes took longer than the rest of a conversion.
    tensor = ctypes.string_at(ctypes.addressof(found) + type(found).tensor.offset, _TENSOR.size)
    data, kind, index, ndim, code, bits, lanes, sizes, steps, offset = _TENSOR.unpack(tensor)
    shape = _numbers(sizes, ndim)
    if not data and 0 not in shape:
        raise BufferError("it offers no memory")
    return TensorInfo(
        device=(kind, index),
        dtype=_NAMES.get((code, bits, lanes)) or f"(code {code}, {bits} bits, {lanes} lanes)",
        shape=shape,
        strides=_numbers(steps, ndim) if steps else _c_order(shape),
        address=data + offset,
        read_only=bool(found.flags & _READ_ONLY) if isinstance(found, DLManagedTensorVersioned) else None,
    )


def structure_address(capsule: Any) -> tuple[int, int]:
    """Return the address of the structure that an unversioned capsule points to, and its ``byte_offset``."""
    where: int = _pointer(capsule, b"dltensor")
    return where, _word(where + _OFFSET).value


def data_address(capsule: Any) -> int:
    """Return only the address that an unversioned capsule offers, in a tenth of the time of `read`; 0 for no memory."""
    where: int = _pointer(capsule, b"dltensor")
    return int(_word(where).value + _word(where + _OFFSET).value)


def _numbers(address: int, count: int) -> tuple[int, ...]:
    """Read some 64-bit numbers from memory; for a count of 0 the address is not read."""
    return unpack(f"{count}q", ctypes.string_at(address, 8 * count)) if count else ()


def set_dtype(capsule: Any, dtype: str) -> Any:
    """Write another dtype of the same size into a capsule, and return the capsule."""
    tensor = managed_tensor(capsule, versioned=True).tensor
    tensor.code, tensor.bits, tensor.lanes = FORMS.get(dtype) or SMALL[dtype]
    return capsule


def normalize_strides(capsule: Any) -> None:
    """Remove the strides of contiguous memory from a capsule if they differ from C order, on axes of one element."""
    offered, tensor = read(capsule, versioned=True), managed_tensor(capsule, versioned=True).tensor
    if offered.is_contiguous and offered.strides != _c_order(offered.shape):
        tensor.strides = None  # set to null, not overwritten: they belong to the producer


def _c_order(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of elements in C order without gaps."""
    steps, step = [], 1
    for size in reversed(shape):
        steps.append(step)
        step *= size
    return tuple(reversed(steps))


class Exporter:
    """A producer of today's protocol for a tensor that lacks it: shares memory only where it is, unversioned.

    Args:
        device: DLPack's device type and number.
        capsule: Returns a fresh capsule, called with the consumer's ``stream``.
    """

    def __init__(self, device: tuple[int, int], capsule: Callable[[Any], Any]) -> None:
        self._device = device
        self._capsule = capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        if copy or (dl_device is not None and tuple(dl_device) != self._device):
            raise BufferError(_ONLY_IN_PLACE)
        return self._capsule(stream)


class ValidatingExporter:
    """A producer whose capsules are checked before their consumer gets them.

    Args:
        source: The producer. Its device may lack a number (Paddle names the host ``(1, None)``), which then becomes 0.
        check: Called with the contents of a capsule; raises if the consumer must not get it, best a `BufferError`: some
            consumers take a `TypeError` for that of an older producer, and ask again.
    """

    def __init__(self, source: Any, check: Callable[[TensorInfo], None]) -> None:
        self._source = source
        self._check = check

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, index = self._source.__dlpack_device__()
        return (int(kind), int(index or 0))

    def __dlpack__(self, **options: Any) -> Any:
        capsule = self._source.__dlpack__(**options)
        self._check(read(capsule, versioned=True))
        return capsule


class Ordered:
    """A producer that waits for its device if a consumer does not say on which stream it computes.

    With a ``stream``, the producer orders its work before the consumer's on that stream, and the GPU computes on.

    Args:
        source: The producer.
        wait: Waits until the producer's device has finished all the work that was queued on it.
    """

    def __init__(self, source: Any, wait: Callable[[], None]) -> None:
        self._source = source
        self._wait = wait

    def __dlpack_device__(self) -> Any:
        return self._source.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        if options.get("stream") in (None, -1):  # it is not stated, or no ordering is requested
            self._wait()
        return self._source.__dlpack__(**options)
