"""Sharing memory with other frameworks through DLPack.

Requirements that this module meets:

* Every capsule, exported or imported, is read and compared with the tensor.  Paddle 2.6 exports bool as uint8, exports
  a strided view as if it were contiguous, reads a strided capsule as if it were contiguous, and takes negative strides
  for sizes: wrong values, without an error.  3.x does the first three correctly.
* ``__dlpack_device__`` of a Paddle tensor describes the host as ``(1, None)``, which JAX refuses; here it has an index.
* uint16, uint32 and uint64 are refused: Paddle 3.x imports them, but then cannot even copy them.
* A writable tensor is never made over memory whose owner declares it read-only.
* Deadlocks are avoided.  Paddle 3.3 releases memory that it got through DLPack while it holds a lock of its own.  If
  that memory belongs, directly or through a chain of owners, to a tensor that was imported the same way, the thread
  waits for itself forever.  So host memory is imported through NumPy, whose arrays Paddle releases without a lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import paddle
from paddle.utils import dlpack

from devshim.contract.fast_paths import FastPaths
from devshim.errors import ConversionError, messages
from devshim.transfers import dlpack as dlpack_module
from devshim_backends._paddle.creation import EAGER, NAMES, NEW, NUMPY, PADDLE, SMALL
from devshim_backends._paddle.devices import HOST, core
from devshim_backends._paddle.tensors import (
    HOST_PLACE,
    MOST_AXES,
    STRIDED,
    Memory,
    PaddleTensors,
    copy_to_host,
    too_many_axes,
)

if TYPE_CHECKING:
    from devshim.contract.backend import Tensor

_KINDS = {"cpu": dlpack_module.CPU, "gpu": dlpack_module.CUDA}
"""devshim's kind -> DLPack's DLDeviceType, for the kinds that Paddle exports."""

_SMALL = frozenset(SMALL.values())
_UNKNOWN = frozenset({"uint16", "uint32", "uint64"})
"""The dtypes that Paddle 3.x imports but then cannot even copy."""

_TENSORS = (EAGER, paddle.base.framework.EagerParamBase)
"""The types whose values are in one block of memory: a tensor, and a layer's parameter."""
_SHARES = hasattr(core, "DenseTensor")
"""True if imported memory is shared; Paddle 2.6, where this class is called ``LoDTensor``, copies it."""
_TELLS_ITS_VERSION = hasattr(getattr(core, "DenseTensor", None), "_to_dlpack_versioned") and (
    np.lib.NumpyVersion(np.__version__) >= "2.1.0"
)
"""True if there are capsules that declare memory writable (Paddle 3.3), and NumPy can read that (2.1)."""


def _is_plain(x: Tensor) -> bool:
    """Return True if a tensor of a known dtype is on the host and has memory, with its values in C order."""
    return bool(x.is_dense() and x._is_initialized() and x.is_contiguous() and x.place._type() in HOST)


class _Once:
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
    kind = NUMPY.get(NAMES.get(x.dtype, ""))
    if kind is None or not _is_plain(x):
        return None
    array: np.ndarray = np.from_dlpack(_Once(x.get_tensor()._to_dlpack_versioned()))
    return array if array.flags.writeable and array.dtype is kind and [*array.shape] == x.shape else None


def _fast_export(x: Tensor, alignment: int) -> tuple[Any, str, tuple[int, ...]] | None:
    """Return the capsule of a plain tensor (see `FastPaths.dlpack_export`)."""
    name = NAMES.get(x.dtype)
    if name is None or name == "bfloat16" or not _is_plain(x):
        return None
    capsule = dlpack.to_dlpack(x if x.stop_gradient else x.detach())
    return (
        None
        if dlpack_module.address(capsule) % (alignment or NUMPY[name].itemsize)
        else (capsule, name, tuple(x.shape))
    )


def _array(capsule: Any, address: int) -> np.ndarray:
    """Return a NumPy array over a capsule's memory, without the read-only flag, which NumPy sets if it cannot know."""
    array: np.ndarray = np.from_dlpack(_Once(capsule))
    if array.flags.writeable:
        return array
    strides = None if array.flags.c_contiguous else array.strides
    return np.asarray(Memory(array, address, array.shape, strides, array.dtype))


def _held(array: np.ndarray) -> Tensor:
    """Return a tensor over the memory of an array in C order."""
    return EAGER(value=array, place=HOST_PLACE, zero_copy=True, **NEW)


def _strided(capsule: Any, offered: dlpack_module.TensorInfo) -> Tensor:
    """Return a tensor over a capsule's memory, with any strides."""
    if offered.dtype == "bfloat16":
        dlpack_module.label(capsule, "uint16")  # the dtype from which Paddle reads bfloat16
    array = _array(capsule, offered.address)
    if offered.is_contiguous:
        return _held(array.reshape(offered.shape))
    last = sum((size - 1) * step for size, step in zip(offered.shape, offered.strides, strict=True))
    flat = np.lib.stride_tricks.as_strided(array, (last + 1,), (array.itemsize,))
    return paddle.as_strided(_held(flat), list(offered.shape), list(offered.strides))


def _fast_import(capsule: Any, dtype: str, shape: tuple[int, ...]) -> Tensor | None:
    """Return a tensor over a plain capsule (see `FastPaths.dlpack_import`)."""
    native, address = PADDLE.get(dtype), dlpack_module.address(capsule)
    if native is None or not address or not paddle.in_dynamic_mode():
        return None
    x = _held(_array(capsule, address))
    faithful = x.dtype == native and tuple(x.shape) == shape and x.data_ptr() == address
    return x if faithful and x.is_contiguous() and x.place._type() in HOST else None


class PaddleDlpack(PaddleTensors):
    """The mixin for DLPack."""

    fast_paths = FastPaths(
        host_copy={EAGER: copy_to_host},
        numpy_view=dict.fromkeys(_TENSORS if _TELLS_ITS_VERSION else (), _fast_view),
        dlpack_export=dict.fromkeys(_TENSORS, _fast_export),
        dlpack_import=_fast_import if _SHARES else None,
    )
    alignment = 0
    """Measured on 3.3.1 (x86-64, AVX-512) with 45 operators, all dtypes, 1 to 4,096 elements, at offsets of 0 to 64 B.

    For complex128, twenty-two operators (``x + x``, ``x[0].item()``, ``zero_``, ...) end the process (SIGSEGV) if the
    address is not a multiple of 16, from 1 element on. The others worked at every address, which no C++ compiler
    guarantees.
    """

    def to_dlpack(self, x: Tensor) -> Any:
        if x.is_dense() and x.dtype in _SMALL:
            raise ConversionError(f"DLPack has no form for PaddlePaddle's {self.dtype_name(x)}", "let it be copied")
        if not x.is_dense() or x.dtype not in NAMES:
            raise self._unusable(x, "be shared")
        device = self.device_of(x)
        if device.kind not in _KINDS:
            raise ConversionError(
                f"PaddlePaddle does not export {device.kind} tensors through DLPack", "leave copy out to copy it"
            )
        plain = x.detach()  # gradients stay here; a Parameter becomes a plain tensor
        checked = [self._capsule(plain)]  # a tensor that Paddle cannot export is refused here, not in the consumer

        def export(stream: Any) -> Any:
            if stream != -1:  # -1: the consumer needs no synchronization
                self.synchronize(device)
            return checked.pop() if checked else self._capsule(plain)

        return dlpack_module.Exporter((_KINDS[device.kind], device.index), export)

    def _capsule(self, x: Tensor) -> Any:
        try:
            capsule = dlpack.to_dlpack(x)
            if not self._is_same(_look(capsule), x):
                raise BufferError(f"PaddlePaddle offers its {self.dtype_name(x)} as something else")
        except Exception as error:
            raise ConversionError(f"PaddlePaddle cannot export this tensor: {error}", "let it be copied") from error
        return capsule

    def from_dlpack(self, source: Any) -> Tensor:
        try:
            if isinstance(source, np.ndarray) and not source.flags.writeable:
                raise BufferError("it is read-only, and PaddlePaddle has no read-only tensors")
            return self._taken(source.__dlpack__())
        except Exception as error:  # BufferError, NotImplementedError, TypeError, ...: the producer's or Paddle's
            raise messages.not_accepted(self, source, error) from error

    def _taken(self, capsule: Any) -> Tensor:
        offered = _look(capsule)
        if not (offered.is_contiguous or paddle.get_flags(STRIDED)[STRIDED]):
            raise BufferError(f"it is not contiguous, and {STRIDED} is off")
        on_host = offered.device[0] in dlpack_module.HOST
        made = _strided(capsule, offered) if _SHARES and on_host else dlpack.from_dlpack(capsule)
        if not self._is_same(offered, made):
            raise BufferError("PaddlePaddle took it for another dtype, shape or order of values")
        return made

    def _is_same(self, offered: dlpack_module.TensorInfo, x: Tensor) -> bool:
        """Return True if a tensor has the offered dtype and shape, and reads the same values at the same address."""
        if (offered.dtype, offered.shape) != (self.dtype_name(x), tuple(x.shape)):
            return False
        if 0 in offered.shape:
            return True
        steps = zip(offered.shape, offered.strides, x.strides, strict=True)
        return offered.address == x.data_ptr() and all(size == 1 or step == own for size, step, own in steps)


def _look(capsule: Any) -> dlpack_module.TensorInfo:
    """Return the contents of a capsule, or refuse it if Paddle cannot read it."""
    offered = dlpack_module.read(capsule)
    if len(offered.shape) > MOST_AXES:
        raise BufferError(too_many_axes(len(offered.shape)))
    if offered.has_negative_strides:
        raise BufferError("it has negative strides, and PaddlePaddle knows none")
    if offered.dtype in _UNKNOWN:
        raise BufferError(f"PaddlePaddle does not compute with {offered.dtype}")
    return offered
