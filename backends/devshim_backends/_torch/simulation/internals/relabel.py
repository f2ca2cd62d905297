"""The same memory as a tensor of another device, without a copy.

A tensor's DLPack capsule names its device in eight bytes. They are rewritten before PyTorch reads the capsule back in:
``(kDLCPU, 0)`` becomes ``(kDLExtDev, i)``, which PyTorch reads as ``sim:i``, and vice versa. The new tensor has its own
storage, which keeps the original one alive; strides and offsets are unchanged.

Without compiled code, PyTorch has no other way to give memory to a custom device.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import Any

import torch

from devshim.errors import UnsupportedError
from devshim_backends._torch.simulation.internals import nested, quantized, sparse
from devshim_backends._torch.simulation.internals.state import NAME

_export, _read = torch._C._to_dlpack, torch._C._from_dlpack

WORDS = memoryview((ctypes.c_char * (1 << 62)).from_address(0)).cast("B").cast("q")
"""This process's memory as words of eight bytes: reading one takes a tenth of the time that `ctypes` takes."""

_DEVICE = 1
"""Offset, in words, of the device in ``DLTensor { void* data; DLDevice { int32 type; int32 id; } device; ... }``."""


def _encode_device(kind: int, index: int) -> int:
    """Return a DLDevice as one number, in this machine's byte order."""
    return int(struct.unpack("=q", struct.pack("=ii", kind, index))[0])


HOST = _encode_device(1, 0)
"""DLPack's code for the host."""
CODES = [_encode_device(12, index) for index in range(64)]
"""DLPack's code (kDLExtDev) for each simulated GPU."""


def _word_of_pointer() -> int:
    """Return the word of a PyCapsule that contains its pointer; found once, by comparison with Python's answer."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    capsule = _export(torch.empty((), device="cpu"))
    address = pointer(capsule, b"dltensor")
    for word in range(1, 8):
        if WORDS[(id(capsule) >> 3) + word] == address and WORDS[(address >> 3) + _DEVICE] == HOST:
            return word
    msg = "Python's capsules do not have the layout that devshim expects"
    raise RuntimeError(msg)


_POINTER = _word_of_pointer()

SAME_WIDTH_DTYPES = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Element size -> a dtype that DLPack supports, used for dtypes that it does not."""
UNDER_WAY: dict[int, Callable[[Any], None]] = {}
"""Address of a GPU's memory to which a copy is under way -> a function that is called before the memory is used."""
_COMPOSITE = torch._C.DispatchKey.CompositeExplicitAutograd
_STRIDED = torch.strided
_conj, _negated = torch.ops.aten._conj.default, torch.ops.aten._neg_view.default
_view_dtype = torch.ops.aten.view.dtype._op_dk


def relabel(tensor: Any, code: int) -> Any:
    """Return a tensor over the same memory on the device of a code.

    Raises:
        NotImplementedError: The tensor has no plain block of memory.
    """
    if UNDER_WAY and code == HOST:
        _deliver_copies(tensor)
    try:
        capsule = _export(tensor)
    except (BufferError, RuntimeError) as error:
        return _relabel_indirectly(tensor, code, error)
    WORDS[(WORDS[(id(capsule) >> 3) + _POINTER] >> 3) + _DEVICE] = code
    return _read(capsule)


def _deliver_copies(tensor: Any) -> None:
    """Deliver the copies that the use of a GPU's tensor waits for (see `late_copies`)."""
    if tensor.layout is _STRIDED and tensor.get_device() >= 0:
        arrive = UNDER_WAY.get(tensor.untyped_storage().data_ptr())
        if arrive is not None:
            arrive(tensor)


def _relabel_indirectly(tensor: Any, code: int, error: Exception) -> Any:
    """Relabel a tensor with a dtype that DLPack lacks, as integers of the same width, or a sparse tensor."""
    if tensor.layout in sparse.LAYOUTS:
        device = torch.device("cpu") if code == HOST else torch.device(NAME, CODES.index(code))
        return sparse.move_parts(tensor, device, lambda part: relabel(part, code))
    if tensor.is_nested:
        return nested.move_buffer(tensor, lambda buffer: relabel(buffer, code))
    if tensor.is_quantized:
        return quantized.move_bytes(tensor, lambda data: relabel(data, code))
    if tensor.layout is not torch.strided:
        raise unsupported_error(tensor) from error
    integer_dtype = SAME_WIDTH_DTYPES.get(tensor.element_size())
    if integer_dtype is None or tensor.dtype is integer_dtype:
        raise error
    relabelled = relabel(_view_dtype(_COMPOSITE, tensor, integer_dtype), code)
    return _view_dtype(_COMPOSITE, relabelled, tensor.dtype)


def require_supported(tensor: Any) -> None:
    """Refuse to place a tensor that simulated GPUs do not support."""
    msg = f"simulated GPUs have no tensors of layout {str(tensor.layout).removeprefix('torch.')}"
    raise UnsupportedError(msg, "call x.to_dense() first")


def unsupported_error(tensor: Any) -> UnsupportedError:
    """Return the error for a tensor that simulated GPUs do not support."""
    return UnsupportedError(
        f"a simulated GPU does not support tensors of layout {tensor.layout}",
        "compute with it on the CPU, or use x.to_dense()",
    )


def to_host(tensor: Any) -> Any:
    """Return a GPU's tensor as a host tensor over the same memory."""
    return relabel(tensor, HOST)


def to_host_keeping_bits(tensor: Any) -> Any:
    """Return `to_host` of a tensor that may be sparse, or have a lazy conjugation or negation.

    A capsule cannot hold these. No capsule is tried for a sparse tensor: when PyTorch 2.10 refuses one that requires a
    gradient, it loses a reference to it.
    """
    if tensor.layout is not _STRIDED:
        return _relabel_indirectly(tensor, HOST, unsupported_error(tensor))
    return keep_lazy_bits(relabel(tensor, HOST), tensor)


def keep_lazy_bits(relabelled: Any, tensor: Any) -> Any:
    """Return a relabelled tensor with the pending conjugation or negation of its original."""
    if tensor.is_conj():
        relabelled = _conj(relabelled)
    return _negated(relabelled) if tensor.is_neg() else relabelled
