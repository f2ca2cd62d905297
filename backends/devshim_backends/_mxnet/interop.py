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

from devshim import _dlpack, _refusals
from devshim.errors import ConversionError
from devshim_backends._mxnet import capsules
from devshim_backends._mxnet.native import CODES, NAMES, dtype_code, numpy_shapes
from devshim_backends._mxnet.tensors import MxnetTensors

if TYPE_CHECKING:
    from devshim.backend import Tensor


class MxnetInterop(MxnetTensors):
    """The room of interop."""

    def to_dlpack(self, x: Tensor) -> Any:
        if self.is_tracer(x):
            raise _refusals.tracing(self, "convert", "convert before or after calling the block")
        if isinstance(x, mx.nd.sparse.BaseSparseNDArray):
            raise ConversionError("DLPack has no sparse arrays", "call x.tostype('default') first")
        device = self.device_of(x)
        real = device.kind == "gpu" and not self.simulated
        # A simulated card's memory is the host's, and says so.
        where = (_dlpack.CUDA, device.index) if real else (_dlpack.CPU, 0)
        return _dlpack.Exporter(where, lambda stream: _capsule(x, where))

    def from_dlpack(self, source: Any) -> Tensor:
        try:
            return _taken(source.__dlpack__())
        except Exception as error:  # producers raise BufferError, TypeError, RuntimeError, ...
            raise _refusals.not_taken(self, source, error) from error


def _capsule(x: Tensor, where: tuple[int, int]) -> Any:
    """A capsule over an array's memory, once all work on it is done, in today's words."""
    check_call(_LIB.MXNDArrayWaitToWrite(x.handle))
    address = ctypes.c_void_p()
    check_call(_LIB.MXNDArrayToDLPack(x.handle, ctypes.byref(address)))
    tensor = _dlpack.DLManagedTensor.from_address(address.value or 0).tensor
    tensor.device_type, tensor.device_id = where
    capsules.label(tensor, NAMES[dtype_code(x)])
    return capsules.made(address)


def _taken(capsule: Any) -> Tensor:
    """The array over a capsule's memory; the capsule is marked as used, as the protocol wants."""
    _check(_dlpack.read(capsule))
    managed = _dlpack.managed(capsule)
    _adapt(managed.tensor)
    handle = NDArrayHandle()
    create = getattr(_LIB, "MXNDArrayFromDLPackEx", None) or _LIB.MXNDArrayFromDLPack
    with numpy_shapes():
        check_call(create(ctypes.byref(managed), ctypes.c_bool(False), ctypes.byref(handle)))
    capsules.mark_used(capsule)
    return mx.np.ndarray(handle)


def _check(offered: _dlpack.Offer) -> None:
    """Refuse what MXNet cannot express."""
    if offered.dtype not in CODES:
        raise BufferError(f"MXNet {mx.__version__} has no dtype {offered.dtype}")
    if offered.device[0] not in (_dlpack.CPU, _dlpack.CUDA, _dlpack.CUDA_HOST):
        raise BufferError(f"it is on a device of DLPack's kind {offered.device[0]}")
    if not offered.is_contiguous:
        raise BufferError("MXNet's arrays are C-contiguous, and it is not")


def _adapt(tensor: _dlpack.DLTensor) -> None:
    """Say the same about the memory in the words of MXNet's old DLPack."""
    if (tensor.code, tensor.bits, tensor.lanes) == _dlpack.FORMS["bool"]:
        tensor.code, tensor.bits = _dlpack.FORMS["uint8"][0], 1
    if tensor.device_type != _dlpack.CUDA:
        tensor.device_type, tensor.device_id = _dlpack.CPU, 0
    tensor.data = (tensor.data or 0) + tensor.byte_offset
    tensor.byte_offset = 0
    tensor.strides = None
