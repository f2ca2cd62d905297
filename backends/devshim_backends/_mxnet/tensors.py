"""MXNet's arrays: their devices, copies of them, and their host memory.

Requirements that this module meets:

* Both kinds of array are tensors and keep their kind: ``mx.np.ndarray`` and the older ``mx.nd.NDArray``.
* Gradients flow through a copy made inside ``autograd.record()``, as MXNet records it. Outside it nothing is
  recorded, by MXNet's own rule (as under ``torch.no_grad``), but the copy would also lose its ``attach_grad``
  (apache/mxnet#14391): there the copy gets a new one.
* MXNet copies asynchronously and allocates late. Here memory is allocated at the call, so that a full device raises
  at the call. A copy is waited for: NumPy or PyTorch may share the source's memory, and their writes do not wait for
  MXNet's reads (1.9.1, 2.0.0b1). They cannot share that of a simulated GPU, so a copy from one to another is not waited
  for. With ``non_blocking=True`` only a copy to the host is.
* Symbols represent arrays while 1.9 compiles a hybridized block. They have a ``handle`` too, and the array interface
  would read unrelated memory through it: the type is checked first.
"""

from __future__ import annotations

from ctypes import byref, c_int64
from math import prod
from typing import TYPE_CHECKING

import mxnet as mx
import numpy as np

from devshim.devices.device import CPU, Device
from devshim.devices.dtypes import numpy_dtype
from devshim.errors import ConversionError, UnsupportedError, messages
from devshim_backends._mxnet.buffers import HostArray
from devshim_backends._mxnet.devices import MxnetDevices, device_from_code
from devshim_backends._mxnet.internals.native import (
    BFLOAT16,
    CODES,
    NAMES,
    ArrayMemory,
    allocate,
    device_code,
    dtype_code,
    get_context,
    is_recording,
    native_code,
    numpy_shapes,
)
from devshim_backends._mxnet.models.traversal import MODELS
from devshim_backends._mxnet.tracing import (
    OUTSIDE,
    called_function,
    copy_recorded,
    copy_symbol,
    device_of_block,
    is_deferred,
    require_recordable,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from devshim.contract.backend import Tensor

_ARRAYS: set[type] = {mx.np.ndarray, mx.nd.NDArray}
_OPTIMIZERS = (mx.gluon.Trainer, mx.optimizer.Updater, mx.optimizer.Optimizer)
_SPARSE = mx.nd.sparse.BaseSparseNDArray

_HOST = native_code(mx.cpu())
_ITEM_BYTES = {code: 2 if name == "bfloat16" else np.dtype(name).itemsize for code, name in NAMES.items()}
"""MXNet's number for a dtype -> bytes of one element."""
_OPERATOR_LIMIT = 4 << 20
"""Bytes up to which MXNet's operator copies faster than ``copyto``, which passes the work to another thread."""
_COPYABLE = {
    CODES[name]: np.dtype(name).itemsize
    for name in ("float16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool")
}
"""MXNet's numbers for the dtypes that this operator has a kernel for in both releases -> bytes of one element."""


def copy_on_host(x: Tensor) -> Tensor | None:
    """Return a copy on the host of a small host array, if nothing is recorded and no gradient is attached."""
    code = dtype_code(x)
    if device_code(x) != _HOST or code not in _COPYABLE or is_recording() or is_deferred() or x.grad is not None:
        return None
    with numpy_shapes():
        if prod(x.shape) * _COPYABLE[code] > _OPERATOR_LIMIT:
            return None
        copied = mx.np.copy(x)
    copied.wait_to_read()
    return copied if device_code(copied) == _HOST else None


class MxnetTensors(MxnetDevices):
    """The mixin for arrays."""

    def __init__(self) -> None:
        self._devices: dict[int, Device] = {}
        """Device code -> `Device`; replaced by a new dictionary when the simulation changes."""

    def is_tensor(self, cls: type) -> bool:
        return issubclass(cls, (mx.nd.NDArray, mx.sym.Symbol))

    def is_model(self, cls: type) -> bool:
        return issubclass(cls, (*MODELS, *_OPTIMIZERS))

    def is_tracer(self, x: Tensor) -> bool:
        return isinstance(x, mx.sym.Symbol) or is_deferred()

    def device_of(self, x: Tensor) -> Device:
        if type(x) in _ARRAYS:
            devices = self._devices
            code = c_int64()  # `native.device_code`, inlined: it saves a call on the hottest path
            get_context(x.handle, byref(code), byref(code, 4))
            device = devices.get(code.value)
            return device if device is not None else self._cache_device(devices, code.value)
        return self._device_of_uncommon(x)

    def _cache_device(self, devices: dict[int, Device], code: int) -> Device:
        device = device_from_code(code, self.simulated_or_removed)
        if device is None:
            msg = "this MXNet array has no data yet, so it is not on any device"
            raise UnsupportedError(msg, "give it values first: mx.np.zeros(x.shape)")
        return devices.setdefault(code, device)

    def _device_of_uncommon(self, x: Tensor) -> Device:
        """Return the device of a sparse array, of an instance of a subclass, or of a symbol."""
        if isinstance(x, mx.nd.NDArray):
            return self._cache_device(self._devices, device_code(x))
        device = device_of_block(self.device_of)
        if device is None:
            raise messages.tracing(self, "device_of", OUTSIDE)
        return device

    def copy_to(self, x: Tensor, device: Device, non_blocking: bool = False) -> Tensor:
        if self.is_tracer(x):
            return self._copy_traced(x, device)
        native = self.to_native(device)
        with numpy_shapes():
            if isinstance(x, _SPARSE):
                copied = x.copyto(native)
            else:
                cls = mx.np.ndarray if isinstance(x, mx.np.ndarray) else mx.nd.NDArray
                # On a card, memory is allocated now and not when it is first used. On the host, the copying thread
                # allocates it and can reuse memory: fresh memory costs three times as much as a copy of 1 MiB.
                copied = x.copyto(cls(allocate(x.shape, native, device is CPU, x.dtype)))
            if not is_recording() and x.grad is not None:
                copied.attach_grad()
        if not self._may_skip_wait(x, device, non_blocking):
            copied.wait_to_read()
        return copied

    def copy_many(self, xs: Sequence[Tensor], device: Device, non_blocking: bool = False) -> Iterable[Tensor]:
        copies = []
        try:
            for x in xs:
                copies.append(self.copy_to(x, device, True))
                yield copies[-1]
            for x, copied in zip(xs, copies, strict=True):  # all at the end, so that the copies run concurrently
                if not self.is_tracer(copied) and not self._may_skip_wait(x, device, non_blocking):
                    copied.wait_to_read()
        finally:
            copies.clear()  # the traceback would keep them, and their memory

    def _may_skip_wait(self, x: Tensor, device: Device, non_blocking: bool) -> bool:
        """Return True if a copy needs no wait: the caller requested that, or only MXNet uses the source's memory.

        MXNet's engine writes to an array only after earlier copies have read it.
        """
        from_host = self.device_of(x) is CPU
        if device is CPU:
            return non_blocking and from_host
        return non_blocking or (bool(self.simulated) and not from_host)

    def _copy_traced(self, x: Tensor, device: Device) -> Tensor:
        """Copy while a block is compiled: a copy on the block's own device joins the graph, another is refused."""
        if device_of_block(self.device_of) is not device:
            raise messages.tracing(self, "place", OUTSIDE)
        if isinstance(x, mx.sym.Symbol):
            return copy_symbol(x)
        with numpy_shapes():
            # A block hybridized with static_shape=True does not wait for memory that its ``copyto`` reads (2.0.0b1).
            return copy_recorded(x) if dtype_code(x) in _COPYABLE else x.copyto(self.to_native(device))

    def to_numpy(self, x: Tensor, copy: bool) -> np.ndarray:
        if self.is_tracer(x):
            raise messages.tracing(self, "to_numpy", "return the array from the block and read it outside")
        if not copy:
            return _shared_view(x)
        if isinstance(x, _SPARSE):
            x = x.copyto(mx.cpu())  # MXNet would make it dense on its device, and copy that
        with numpy_shapes():
            array: np.ndarray = x.asnumpy()
        return array if array.dtype != BFLOAT16 else array.view(np.uint16).view(numpy_dtype("bfloat16"))

    def from_numpy(self, array: np.ndarray, device: Device, copy: bool) -> Tensor:
        self.dtype(array.dtype.name)  # refuses what MXNet lacks
        require_recordable(self)
        if not copy:
            return self._share_numpy(array)
        with numpy_shapes():
            if array.dtype.name == "bfloat16":  # as bits: MXNet does not know the dtype of ml_dtypes
                array = np.array(array, order="C").view(np.uint16).view(BFLOAT16)
                kind = array.dtype
            else:  # NumPy has two equal 64-bit dtypes, and MXNet 1.9 supports the one with this name
                kind = np.dtype(array.dtype.name)
            x = mx.np.ndarray(allocate(array.shape, self.to_native(device), False, kind))
            x._sync_copyfrom(array)
        return x

    def _share_numpy(self, array: np.ndarray) -> Tensor:
        """Return an array over NumPy's own memory."""
        subject = "the NumPy array"
        if not array.flags.c_contiguous:
            raise messages.cannot_share(subject, "MXNet's arrays are C-contiguous, and this one is not")
        if not array.flags.writeable:
            raise messages.cannot_share(subject, "it is read-only, and MXNet's arrays can be written")
        try:
            return self.from_dlpack(HostArray(array))
        except ConversionError as error:
            raise messages.cannot_share(subject, error.problem) from error

    def dtype_name(self, x: Tensor) -> str:
        if isinstance(x, mx.sym.Symbol):
            raise messages.tracing(self, called_function(), OUTSIDE)
        return NAMES[dtype_code(x)]

    def shape(self, x: Tensor) -> tuple[int, ...]:
        if isinstance(x, mx.sym.Symbol):
            raise messages.tracing(self, called_function(), OUTSIDE)
        return tuple(x.shape)

    def is_writable(self, x: Tensor) -> bool:
        return bool(getattr(x, "writable", False))

    def nbytes(self, x: Tensor) -> int:
        if type(x) in _ARRAYS:
            return int(prod(x.shape)) * _ITEM_BYTES[dtype_code(x)]
        if isinstance(x, mx.sym.Symbol):
            return 0  # a graph node has no values
        if isinstance(x, _SPARSE):
            return sum(map(self.nbytes, (x.data, *map(x._aux_data, range(x._num_aux)))))
        return int(prod(x.shape)) * _ITEM_BYTES[dtype_code(x)]

    def synchronize(self, device: Device) -> None:
        mx.nd.waitall()  # MXNet waits for all devices or for one array; host work is asynchronous, too


def _shared_view(x: Tensor) -> np.ndarray:
    """Return a NumPy array over an MXNet array's own host memory, bool and bfloat16 included."""
    if isinstance(x, _SPARSE):
        raise messages.cannot_share("a sparse array", "its values are not stored as an array")
    x.wait_to_read()
    name, shape = NAMES[dtype_code(x)], tuple(x.shape)
    dtype = np.dtype(np.uint16) if name == "bfloat16" else np.dtype(name)
    view = np.asarray(ArrayMemory(x, shape, dtype.str)) if prod(shape) else np.empty(shape, dtype)
    return view.view(numpy_dtype("bfloat16")) if name == "bfloat16" else view
