"""Sharing memory with other frameworks through DLPack.

Requirements that this module meets:

* bool arrays can be exchanged. MXNet labels a bool "unsigned, 1 bit", others "bool, 8 bits" (kDLBool was added
  later). The bytes are the same, so the label is rewritten in each direction.
* MXNet reads from the right address. It ignores ``byte_offset``, so the offset is added to the address. It refuses
  pinned host memory, so that is labelled as host memory, which it is. The number of a CPU (TensorFlow's ``CPU:1``)
  is dropped, because ``cpu(1)`` is a simulated GPU here.
* What MXNet cannot express (strides, int16 in 1.9, complex) is refused before MXNet sees it.
* 1.9 has no ``__dlpack__``, and that of 2.0 takes none of the arguments of today's protocol: devshim's exporter does.
"""

from __future__ import annotations

import ctypes
from ctypes import byref
from typing import TYPE_CHECKING, Any

import mxnet as mx
import numpy as np
from mxnet.base import _LIB, NDArrayHandle, check_call
from mxnet.ndarray.ndarray import _int64_enabled

from devshim.contract.fast_paths import FastPaths
from devshim.errors import ConversionError, messages
from devshim.transfers import dlpack
from devshim_backends._mxnet import buffers
from devshim_backends._mxnet.internals.native import (
    CODES,
    FAST_LIB,
    NAMES,
    ArrayMemory,
    dtype_code,
    get_context,
    numpy_shapes,
)
from devshim_backends._mxnet.tensors import MxnetTensors, copy_on_host
from devshim_backends._mxnet.tracing import is_deferred

if TYPE_CHECKING:
    from devshim.contract.backend import Tensor

_HOST = 1
"""The device code of ``cpu(0)`` (see `native.device_code`)."""
_PLAIN = {code: (name, np.dtype(name).str) for name, code in CODES.items() if name not in ("bfloat16", "bool")}
"""MXNet's number for the dtype of a plain array -> its name, and its code in NumPy's array interface."""
_create = getattr(FAST_LIB, "MXNDArrayFromDLPackEx", None) or FAST_LIB.MXNDArrayFromDLPack
_create.argtypes = (ctypes.c_void_p, ctypes.c_bool, ctypes.c_void_p)
_export = _LIB.MXNDArrayToDLPack  # MXNet's own, even while native names replace it
_get_dtype = FAST_LIB.MXNDArrayGetDType
_get_shape = getattr(FAST_LIB, "MXNDArrayGetShapeEx", None) or FAST_LIB.MXNDArrayGetShape  # renamed in 2.0
_Sizes: Any = ctypes.POINTER(ctypes.c_int)
if _int64_enabled():  # a build for arrays of more than 2**31 elements
    _get_shape = getattr(FAST_LIB, "MXNDArrayGetShapeEx64", None) or FAST_LIB.MXNDArrayGetShape64
    _Sizes = ctypes.POINTER(ctypes.c_int64)


def _describe(x: Tensor) -> tuple[int, int, tuple[int, ...]]:
    """Return an array's dtype number, its device code and its shape, in a third of the time of three queries.

    A number that MXNet refuses to return stays 0, which is not a device code, and a shape ``()``; the same applies to a
    shape that MXNet does not know.
    """
    handle, code, device, count, sizes = x.handle, ctypes.c_int(), ctypes.c_int64(), ctypes.c_int(), _Sizes()
    _get_dtype(handle, byref(code))
    get_context(handle, byref(device), byref(device, 4))
    _get_shape(handle, byref(count), byref(sizes))
    return code.value, device.value, tuple(sizes[: count.value]) if count.value > 0 else ()


def _describe_plain(x: Tensor) -> tuple[str, str, tuple[int, ...]] | None:
    """Return the names of the dtype (from `_PLAIN`) and the shape of an array, or None if it is not plain."""
    code, device, shape = _describe(x)
    names = _PLAIN.get(code)
    if names is None or not shape or 0 in shape or device != _HOST or not x.writable or is_deferred():
        return None
    return *names, shape


def _fast_view(x: Tensor) -> np.ndarray | None:
    """Return a NumPy view of a plain array (see `FastPaths.numpy_view`), once all work on it is done."""
    plain = _describe_plain(x)
    if plain is None:
        return None
    check_call(_LIB.MXNDArrayWaitToWrite(x.handle))
    return np.asarray(ArrayMemory(x, plain[2], plain[1]))


def _fast_export(x: Tensor, alignment: int) -> tuple[Any, str, tuple[int, ...]] | None:
    """Return the capsule of a plain array (see `FastPaths.dlpack_export`)."""
    plain = _describe_plain(x)
    if plain is None:
        return None
    capsule = _capsule(x, (dlpack.CPU, 0))
    return None if dlpack.data_address(capsule) % (alignment or int(plain[1][2:])) else (capsule, plain[0], plain[2])


def _fast_import(capsule: Any, dtype: str, shape: tuple[int, ...]) -> Tensor | None:
    """Return an array over a plain capsule (see `FastPaths.dlpack_import`)."""
    offered, offset = dlpack.structure_address(capsule)
    if offset or dtype == "bool" or not shape or 0 in shape:
        return None  # MXNet reads these only after `_adapt`, or inside `numpy_shapes`
    handle = NDArrayHandle()
    check_call(_create(offered, False, byref(handle)))
    buffers.mark_used(capsule)
    x = mx.np.ndarray(handle)
    return x if _describe(x) == (CODES.get(dtype), _HOST, shape) else None


class MxnetDlpack(MxnetTensors):
    """The mixin for DLPack."""

    fast_paths = FastPaths(
        host_copy={mx.np.ndarray: copy_on_host},
        numpy_view={mx.np.ndarray: _fast_view, mx.nd.NDArray: _fast_view},
        dlpack_export={mx.np.ndarray: _fast_export, mx.nd.NDArray: _fast_export},
        dlpack_import=_fast_import,
    )
    alignment = 0
    """Measured on 2.0.0b1 (x86-64, AVX-512) with 44 operators, all dtypes, 1 to 4,096 elements, at offsets of 0 to 64
    bytes: no operator crashes because of its address. Below the size of an element, no C++ compiler
    guarantees that.
    """

    def to_dlpack(self, x: Tensor) -> Any:
        if self.is_tracer(x):
            raise messages.tracing(self, "convert", "convert before or after calling the block")
        if isinstance(x, mx.nd.sparse.BaseSparseNDArray):
            raise ConversionError("DLPack has no sparse arrays", "call x.tostype('default') first")
        device = self.device_of(x)
        real = device.kind == "gpu" and not self.simulated
        # The memory of a simulated GPU is host memory, and is labelled so.
        where = (dlpack.CUDA, device.index) if real else (dlpack.CPU, 0)
        return dlpack.Exporter(where, lambda stream: _capsule(x, where))

    def from_dlpack(self, source: Any) -> Tensor:
        try:
            return _import_capsule(source.__dlpack__())
        except Exception as error:  # producers raise BufferError, TypeError, RuntimeError, ...
            raise messages.not_accepted(self, source, error) from error


def _capsule(x: Tensor, where: tuple[int, int]) -> Any:
    """Return a capsule over an array's memory, labelled as DLPack does today, once all work on the array is done."""
    check_call(_LIB.MXNDArrayWaitToWrite(x.handle))
    address = ctypes.c_void_p()
    check_call(_export(x.handle, ctypes.byref(address)))
    tensor = dlpack.DLManagedTensor.from_address(address.value or 0).tensor
    tensor.device_type, tensor.device_id = where
    buffers.set_dtype(tensor, NAMES[dtype_code(x)])
    return buffers.make_capsule(address)


def _import_capsule(capsule: Any) -> Tensor:
    """Return the array over a capsule's memory; the capsule is marked as used, as the protocol requires."""
    _check(dlpack.read(capsule))
    managed = dlpack.managed_tensor(capsule)
    _adapt(managed.tensor)
    handle = NDArrayHandle()
    create = getattr(_LIB, "MXNDArrayFromDLPackEx", None) or _LIB.MXNDArrayFromDLPack
    with numpy_shapes():
        check_call(create(ctypes.byref(managed), ctypes.c_bool(False), ctypes.byref(handle)))
    buffers.mark_used(capsule)
    return mx.np.ndarray(handle)


def _check(offered: dlpack.TensorInfo) -> None:
    """Refuse a capsule that MXNet cannot express."""
    if offered.dtype not in CODES:
        msg = f"MXNet {mx.__version__} has no dtype {offered.dtype}"
        raise BufferError(msg)
    if offered.device[0] not in (dlpack.CPU, dlpack.CUDA, dlpack.CUDA_HOST):
        msg = f"MXNet does not support DLPack's device type {offered.device[0]}"
        raise BufferError(msg)
    if not offered.is_contiguous:
        msg = "MXNet's arrays are C-contiguous, and this one is not"
        raise BufferError(msg)


def _adapt(tensor: dlpack.DLTensor) -> None:
    """Describe the same memory in the terms of the old DLPack that MXNet reads."""
    if (tensor.code, tensor.bits, tensor.lanes) == dlpack.FORMS["bool"]:
        tensor.code, tensor.bits = dlpack.FORMS["uint8"][0], 1
    if tensor.device_type != dlpack.CUDA:
        tensor.device_type, tensor.device_id = dlpack.CPU, 0
    tensor.data = (tensor.data or 0) + tensor.byte_offset
    tensor.byte_offset = 0
    tensor.strides = None
