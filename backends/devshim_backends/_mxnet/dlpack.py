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
from ctypes import byref
from typing import TYPE_CHECKING, Any, ClassVar

import mxnet as mx
import numpy as np
from mxnet.base import _LIB, NDArrayHandle, check_call
from mxnet.ndarray.ndarray import _int64_enabled

from devshim.errors import ConversionError, messages
from devshim.transfers import dlpack
from devshim_backends._mxnet import capsules
from devshim_backends._mxnet.native import CODES, NAMES, QUICK, dtype_code, get_context, numpy_shapes
from devshim_backends._mxnet.tensors import MxnetTensors
from devshim_backends._mxnet.tracing import is_deferred

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from devshim.contract.backend import Tensor

_HOST = 1
"""The number of the place ``cpu(0)`` (see `native.where`)."""
_PLAIN = {code: (name, np.dtype(name).str) for name, code in CODES.items() if name not in ("bfloat16", "bool")}
"""MXNet's number for the dtype of a plain array -> its name, and what NumPy's array interface calls it."""
_create = getattr(QUICK, "MXNDArrayFromDLPackEx", None) or QUICK.MXNDArrayFromDLPack
_create.argtypes = (ctypes.c_void_p, ctypes.c_bool, ctypes.c_void_p)


_dtype_of = QUICK.MXNDArrayGetDType
_sizes_of = getattr(QUICK, "MXNDArrayGetShapeEx", None) or QUICK.MXNDArrayGetShape  # renamed in 2.0
_Sizes: Any = ctypes.POINTER(ctypes.c_int)
if _int64_enabled():  # a build for arrays of more than 2**31 elements
    _sizes_of = getattr(QUICK, "MXNDArrayGetShapeEx64", None) or QUICK.MXNDArrayGetShape64
    _Sizes = ctypes.POINTER(ctypes.c_int64)


def _form(x: Tensor) -> tuple[int, int, tuple[int, ...]]:
    """The number of an array's dtype, that of its place, and its shape, in a third of the time of three questions.

    What MXNet refuses to tell stays 0, which is no place, and ``()``; so does a shape that it does not know.
    """
    handle, code, place, count, sizes = x.handle, ctypes.c_int(), ctypes.c_int64(), ctypes.c_int(), _Sizes()
    _dtype_of(handle, byref(code))
    get_context(handle, byref(place), byref(place, 4))
    _sizes_of(handle, byref(count), byref(sizes))
    return code.value, place.value, tuple(sizes[: count.value]) if count.value > 0 else ()


class _Values:
    """What NumPy is shown of a plain array's memory.

    It keeps a handle of its own to the memory alive: a parameter's can be exchanged for one to other memory.
    """

    __slots__ = ("__array_interface__", "_x")

    def __init__(self, x: Tensor, shape: tuple[int, ...], typestr: str) -> None:
        handle, address = NDArrayHandle(), ctypes.c_void_p()
        check_call(QUICK.MXNDArrayDetach(x.handle, byref(handle)))
        self._x = mx.nd.NDArray(handle)
        check_call(QUICK.MXNDArrayGetData(handle, byref(address)))
        self.__array_interface__ = {"data": (address.value, False), "shape": shape, "typestr": typestr, "version": 3}


def _plain(x: Tensor) -> tuple[str, str, tuple[int, ...]] | None:
    """What `_PLAIN` says of the dtype, and the shape, of an array that is plain."""
    code, place, shape = _form(x)
    kinds = _PLAIN.get(code)
    if kinds is None or not shape or 0 in shape or place != _HOST or not x.writable or is_deferred():
        return None
    return *kinds, shape


def _view(x: Tensor) -> np.ndarray | None:
    """NumPy over a plain array (see `Backend.viewers`), once all work on it is done."""
    plain = _plain(x)
    if plain is None:
        return None
    check_call(_LIB.MXNDArrayWaitToWrite(x.handle))
    return np.asarray(_Values(x, plain[2], plain[1]))


def _lend(x: Tensor, alignment: int) -> tuple[Any, str, tuple[int, ...]] | None:
    """A plain array's capsule (see `Backend.lenders`)."""
    plain = _plain(x)
    if plain is None:
        return None
    capsule = _capsule(x, (dlpack.CPU, 0))
    return None if dlpack.address(capsule) % (alignment or int(plain[1][2:])) else (capsule, plain[0], plain[2])


def _borrow(capsule: Any, dtype: str, shape: tuple[int, ...]) -> Tensor | None:
    """An array over a plain capsule (see `Backend.borrower`)."""
    offered, offset = dlpack.structure(capsule)
    if offset or dtype == "bool" or not shape or 0 in shape:
        return None  # what MXNet reads only in other words (`_adapt`), or in another mode (`numpy_shapes`)
    handle = NDArrayHandle()
    check_call(_create(offered, False, byref(handle)))
    capsules.mark_used(capsule)
    x = mx.np.ndarray(handle)
    return x if _form(x) == (CODES.get(dtype), _HOST, shape) else None


class MxnetInterop(MxnetTensors):
    """The room of interop."""

    viewers: ClassVar[Mapping[type, Callable[[Any], Any]]] = {mx.np.ndarray: _view, mx.nd.NDArray: _view}
    lenders: ClassVar[Mapping[type, Callable[[Any, int], Any]]] = {mx.np.ndarray: _lend, mx.nd.NDArray: _lend}
    borrower = staticmethod(_borrow)
    alignment = 0
    """Measured on 2.0.0b1 (x86-64, AVX-512): 44 operators, all dtypes, 1 to 4,096 elements, at 0 to 64 bytes: none ends
    the process for its address; below the size of an element, no compiler promises it for C++.
    """

    def to_dlpack(self, x: Tensor) -> Any:
        if self.is_tracer(x):
            raise messages.tracing(self, "convert", "convert before or after calling the block")
        if isinstance(x, mx.nd.sparse.BaseSparseNDArray):
            raise ConversionError("DLPack has no sparse arrays", "call x.tostype('default') first")
        device = self.device_of(x)
        real = device.kind == "gpu" and not self.simulated
        # A simulated card's memory is the host's, and says so.
        where = (dlpack.CUDA, device.index) if real else (dlpack.CPU, 0)
        return dlpack.Exporter(where, lambda stream: _capsule(x, where))

    def from_dlpack(self, source: Any) -> Tensor:
        try:
            return _taken(source.__dlpack__())
        except Exception as error:  # producers raise BufferError, TypeError, RuntimeError, ...
            raise messages.not_taken(self, source, error) from error


def _capsule(x: Tensor, where: tuple[int, int]) -> Any:
    """A capsule over an array's memory, once all work on it is done, in today's words."""
    check_call(_LIB.MXNDArrayWaitToWrite(x.handle))
    address = ctypes.c_void_p()
    check_call(_LIB.MXNDArrayToDLPack(x.handle, ctypes.byref(address)))
    tensor = dlpack.DLManagedTensor.from_address(address.value or 0).tensor
    tensor.device_type, tensor.device_id = where
    capsules.label(tensor, NAMES[dtype_code(x)])
    return capsules.made(address)


def _taken(capsule: Any) -> Tensor:
    """The array over a capsule's memory; the capsule is marked as used, as the protocol wants."""
    _check(dlpack.read(capsule))
    managed = dlpack.managed(capsule)
    _adapt(managed.tensor)
    handle = NDArrayHandle()
    create = getattr(_LIB, "MXNDArrayFromDLPackEx", None) or _LIB.MXNDArrayFromDLPack
    with numpy_shapes():
        check_call(create(ctypes.byref(managed), ctypes.c_bool(False), ctypes.byref(handle)))
    capsules.mark_used(capsule)
    return mx.np.ndarray(handle)


def _check(offered: dlpack.Offer) -> None:
    """Refuse what MXNet cannot express."""
    if offered.dtype not in CODES:
        raise BufferError(f"MXNet {mx.__version__} has no dtype {offered.dtype}")
    if offered.device[0] not in (dlpack.CPU, dlpack.CUDA, dlpack.CUDA_HOST):
        raise BufferError(f"it is on a device of DLPack's kind {offered.device[0]}")
    if not offered.is_contiguous:
        raise BufferError("MXNet's arrays are C-contiguous, and it is not")


def _adapt(tensor: dlpack.DLTensor) -> None:
    """Say the same about the memory in the words of MXNet's old DLPack."""
    if (tensor.code, tensor.bits, tensor.lanes) == dlpack.FORMS["bool"]:
        tensor.code, tensor.bits = dlpack.FORMS["uint8"][0], 1
    if tensor.device_type != dlpack.CUDA:
        tensor.device_type, tensor.device_id = dlpack.CPU, 0
    tensor.data = (tensor.data or 0) + tensor.byte_offset
    tensor.byte_offset = 0
    tensor.strides = None
