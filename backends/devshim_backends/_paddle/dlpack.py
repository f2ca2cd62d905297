"""Sharing memory with other frameworks through DLPack.

Requirements that this module meets:

* Every capsule, exported or imported, is read and compared with the tensor. Paddle 3.3 takes negative strides for
  sizes, and older versions have read bool and strided memory wrong, without an error.
* ``__dlpack_device__`` of a Paddle tensor describes the host as ``(1, None)``, which JAX refuses; here it has an index.
* uint16, uint32 and uint64 are refused: Paddle 3.x imports them, but then cannot even copy them.
* A writable tensor is never made over memory whose owner declares it read-only.
* Deadlocks are avoided. Paddle 3.3 releases memory that it got through DLPack while it holds its own lock. If
  that memory belongs, directly or through a chain of owners, to a tensor that was imported the same way, the thread
  waits for itself forever. So host memory is imported through NumPy, whose arrays Paddle releases without a lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import paddle
from paddle.utils import dlpack

from devshim.contract.fast_paths import FastPaths
from devshim.errors import ConversionError, messages
from devshim.transfers import dlpack as dlpack_module
from devshim_backends._paddle import devices
from devshim_backends._paddle.buffers import HostMemory
from devshim_backends._paddle.creation import (
    DTYPE_NAMES,
    FLOAT8,
    NEW_ATTRIBUTES,
    NUMPY_DTYPES,
    PADDLE_DTYPES,
    EagerTensor,
    require_dynamic,
)
from devshim_backends._paddle.devices import HOST, core, is_xpu
from devshim_backends._paddle.random import HOST_DRAWS
from devshim_backends._paddle.tensors import (
    HOST_PLACE,
    MAX_AXES,
    STRIDES_FLAG,
    PaddleTensors,
    copy_to_host,
    explain_axes,
)

if TYPE_CHECKING:
    from devshim.contract.backend import Tensor

_DLPACK_TYPES = {"cpu": dlpack_module.CPU, "gpu": dlpack_module.CUDA}
"""devshim's kind -> DLPack's DLDeviceType, for the kinds that Paddle exports."""

_FLOAT8_DTYPES = frozenset(FLOAT8.values())
_UNUSABLE_DTYPES = frozenset({"uint16", "uint32", "uint64"})
"""The dtypes that Paddle 3.x imports but then cannot even copy."""

_COPIED = {id(PADDLE_DTYPES[name]): dtype for name, dtype in NUMPY_DTYPES.items() if name != "complex128"}
"""By the id of Paddle's dtype: NumPy's, if `_fast_copy` takes it. Paddle's own hash of a dtype takes 0.3 us (3.3.1).
Its dtypes live as long as Paddle."""

_TENSORS = (EagerTensor, paddle.base.framework.EagerParamBase)
"""The types whose values are in one block of memory: a tensor, and a layer's parameter."""
_HAS_VERSIONED_CAPSULES = hasattr(core.DenseTensor, "_to_dlpack_versioned") and (
    np.lib.NumpyVersion(np.__version__) >= "2.1.0"
)
"""True if there are capsules that declare memory writable (Paddle 3.3), and NumPy can read that (2.1)."""


def _is_plain(x: Tensor) -> bool:
    """Return True if a tensor of a known dtype is on the host and has memory, with its values in C order."""
    return bool(x.is_dense() and x._is_initialized() and x.is_contiguous() and x.place._type() in HOST)


class _OneCapsule:
    """A producer of one versioned capsule."""

    __slots__ = ("_capsule",)

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (dlpack_module.CPU, 0)

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
        return self._capsule


def _fast_view(x: Tensor) -> np.ndarray | None:
    """Return a NumPy view of a plain tensor (see `FastPaths.numpy_view`)."""
    kind = NUMPY_DTYPES.get(DTYPE_NAMES.get(x.dtype, ""))
    if kind is None or not _is_plain(x):
        return None
    array: np.ndarray = np.from_dlpack(_OneCapsule(x.get_tensor()._to_dlpack_versioned()))
    return array if array.flags.writeable and array.dtype is kind and [*array.shape] == x.shape else None


def _fast_copy(x: Tensor) -> np.ndarray | None:
    """Return a plain tensor's values in new memory (see `FastPaths.numpy_copy`), in a process without GPUs."""
    kind = _COPIED.get(id(x.dtype))
    if kind is None or not devices.only_host or not x.is_dense():
        return None
    array = x.numpy()
    return array if type(array) is np.ndarray and array.dtype is kind else None


def _fast_export(x: Tensor, alignment: int) -> tuple[Any, str, tuple[int, ...]] | None:
    """Return the capsule of a plain tensor (see `FastPaths.dlpack_export`)."""
    name = DTYPE_NAMES.get(x.dtype)
    if name is None or name == "bfloat16" or not _is_plain(x):
        return None
    capsule = dlpack.to_dlpack(x if x.stop_gradient else x.detach())
    return (
        None
        if dlpack_module.data_address(capsule) % (alignment or NUMPY_DTYPES[name].itemsize)
        else (capsule, name, tuple(x.shape))
    )


def _numpy_over(capsule: Any, address: int) -> np.ndarray:
    """Return a NumPy array over a capsule's memory, without the read-only flag, which NumPy sets if it cannot know."""
    array: np.ndarray = np.from_dlpack(_OneCapsule(capsule))
    if array.flags.writeable:
        return array
    strides = None if array.flags.c_contiguous else array.strides
    return np.asarray(HostMemory(array, address, array.shape, strides, array.dtype))


def _tensor_over(array: np.ndarray) -> Tensor:
    """Return a tensor over the memory of an array in C order."""
    return EagerTensor(value=array, place=HOST_PLACE, zero_copy=True, **NEW_ATTRIBUTES)


def _strided_tensor(capsule: Any, info: dlpack_module.TensorInfo) -> Tensor:
    """Return a tensor over a capsule's memory, with any strides."""
    if info.dtype == "bfloat16":
        dlpack_module.set_dtype(capsule, "uint16")  # the dtype from which Paddle reads bfloat16
    array = _numpy_over(capsule, info.address)
    if info.is_contiguous:
        return _tensor_over(array.reshape(info.shape))
    last = sum((size - 1) * step for size, step in zip(info.shape, info.strides, strict=True))
    flat = np.lib.stride_tricks.as_strided(array, (last + 1,), (array.itemsize,))
    return paddle.as_strided(_tensor_over(flat), list(info.shape), list(info.strides))


def _fast_import(capsule: Any, dtype: str, shape: tuple[int, ...]) -> Tensor | None:
    """Return a tensor over a plain capsule (see `FastPaths.dlpack_import`)."""
    native, address = PADDLE_DTYPES.get(dtype), dlpack_module.data_address(capsule)
    if native is None or not address or not paddle.in_dynamic_mode():
        return None
    x = _tensor_over(_numpy_over(capsule, address))
    faithful = x.dtype == native and tuple(x.shape) == shape and x.data_ptr() == address
    return x if faithful and x.is_contiguous() and x.place._type() in HOST else None


class PaddleDlpack(PaddleTensors):
    """The mixin for DLPack."""

    fast_paths = FastPaths(
        host_makers=HOST_DRAWS,
        host_copy={EagerTensor: copy_to_host},
        numpy_view=dict.fromkeys(_TENSORS if _HAS_VERSIONED_CAPSULES else (), _fast_view),
        numpy_copy={EagerTensor: _fast_copy},
        dlpack_export=dict.fromkeys(_TENSORS, _fast_export),
        dlpack_import=_fast_import,
    )
    alignment = 0
    """Measured on 3.3.1 (x86-64, AVX-512) with 45 operators, all dtypes, 1 to 4,096 elements, at offsets of 0 to 64 B.

    For complex128, twenty-two operators (``x + x``, ``x[0].item()``, ``zero_``, ...) crash (SIGSEGV) if the
    address is not a multiple of 16, from 1 element on. The others worked at every address, which no C++ compiler
    guarantees.
    """

    def to_dlpack(self, x: Tensor) -> Any:
        if x.is_dense() and x.dtype in _FLOAT8_DTYPES:
            msg = f"DLPack cannot describe PaddlePaddle's {self.dtype_name(x)}"
            raise ConversionError(msg, "leave out copy=False to copy it")
        if not x.is_dense() or x.dtype not in DTYPE_NAMES:
            raise self._make_unusable_error(x, "be shared")
        device = self.device_of(x)
        if device.kind not in _DLPACK_TYPES or is_xpu(device):
            msg = f"PaddlePaddle does not export tensors on {device} through DLPack"
            raise ConversionError(msg, "leave out copy=False to copy it")
        plain = x.detach()  # gradients stay here; a Parameter becomes a plain tensor
        checked = [self._capsule(plain)]  # a tensor that Paddle cannot export is refused here, not in the consumer

        def export(stream: Any) -> Any:
            if stream != -1:  # -1: the consumer needs no synchronization
                self.synchronize(device)
            return checked.pop() if checked else self._capsule(plain)

        return dlpack_module.Exporter((_DLPACK_TYPES[device.kind], device.index), export)

    def _capsule(self, x: Tensor) -> Any:
        try:
            capsule = dlpack.to_dlpack(x)
            if not self._is_same(_read_capsule(capsule), x):
                msg = f"PaddlePaddle exports this {self.dtype_name(x)} with another dtype, shape or order of values"
                raise BufferError(msg)
        except Exception as error:
            msg = f"PaddlePaddle cannot export this tensor: {error}"
            raise ConversionError(msg, "leave out copy=False to copy it") from error
        return capsule

    def from_dlpack(self, source: Any) -> Tensor:
        require_dynamic(self, "from_dlpack")
        try:
            if isinstance(source, np.ndarray) and not source.flags.writeable:
                msg = "it is read-only, and PaddlePaddle has no read-only tensors"
                raise BufferError(msg)
            return self._import_capsule(source.__dlpack__())
        except Exception as error:  # BufferError, NotImplementedError, TypeError, ...: the producer's or Paddle's
            raise messages.not_accepted(self, source, error) from error

    def _import_capsule(self, capsule: Any) -> Tensor:
        info = _read_capsule(capsule)
        if not (info.is_contiguous or paddle.get_flags(STRIDES_FLAG)[STRIDES_FLAG]):
            msg = f"it is not contiguous, and {STRIDES_FLAG} is off"
            raise BufferError(msg)
        on_host = info.device[0] in dlpack_module.HOST
        made = _strided_tensor(capsule, info) if on_host else dlpack.from_dlpack(capsule)
        if not self._is_same(info, made):
            msg = "PaddlePaddle read it with another dtype, shape or order of values"
            raise BufferError(msg)
        return made

    def _is_same(self, info: dlpack_module.TensorInfo, x: Tensor) -> bool:
        """Return True if a tensor has the offered dtype and shape, and reads the same values at the same address."""
        if (info.dtype, info.shape) != (self.dtype_name(x), tuple(x.shape)):
            return False
        if 0 in info.shape:
            return True
        steps = zip(info.shape, info.strides, x.strides, strict=True)
        return info.address == x.data_ptr() and all(size == 1 or step == own for size, step, own in steps)


def _read_capsule(capsule: Any) -> dlpack_module.TensorInfo:
    """Return the contents of a capsule, or refuse it if Paddle cannot read it."""
    info = dlpack_module.read(capsule)
    if len(info.shape) > MAX_AXES:
        raise BufferError(explain_axes(len(info.shape)))
    if info.has_negative_strides:
        msg = "it has negative strides, which PaddlePaddle does not support"
        raise BufferError(msg)
    if info.dtype in _UNUSABLE_DTYPES:
        msg = f"PaddlePaddle does not compute with {info.dtype}"
        raise BufferError(msg)
    return info
