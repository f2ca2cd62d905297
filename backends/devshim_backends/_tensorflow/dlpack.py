"""DLPack for TensorFlow: other frameworks use TensorFlow's memory, and TensorFlow uses theirs.

Requirements of this module:

* Sharing never crashes. TensorFlow aborts if a string tensor is exported, and if an operator reads an imported
  tensor whose memory is not aligned to 64 bytes, as for most NumPy arrays and every other slice (2.16 to 2.21: ``Check
  failed: IsAligned()``). devshim checks both first: it reads the capsule's header before TensorFlow gets the capsule.
* The device is the true one: memory of a simulated GPU is host memory, and other frameworks do not know ``CPU:3``.
* 2.16 to 2.19 have no ``__dlpack__``, and no version accepts an object that has one: `tf.experimental.dlpack` only
  accepts capsules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from tensorflow.experimental.dlpack import to_dlpack
from tensorflow.python.eager.context import context
from tensorflow.python.pywrap_tfe import TFE_FromDlpackCapsule

from devshim.contract.fast_paths import FastPaths
from devshim.devices.device import CPU
from devshim.errors import ConversionError, messages
from devshim.transfers import dlpack
from devshim_backends._tensorflow.devices import DEVICE_BY_NAME, logical_gpus
from devshim_backends._tensorflow.host_tensors import HOST_MAKERS, copy_on_host
from devshim_backends._tensorflow.internals.locations import EAGER, require_dense
from devshim_backends._tensorflow.tensors import NAMES, TensorflowTensors

if TYPE_CHECKING:
    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device

_PLAIN_DTYPES = {tf.as_dtype(name).as_datatype_enum: (name, np.dtype(name)) for name in NAMES - {"bfloat16"}}
"""Maps a plain tensor's dtype number, which is faster to get than the dtype, to the dtype's name and NumPy dtype."""
_NUMBERS = {name: number for number, (name, _) in _PLAIN_DTYPES.items()}


def _fast_view(x: Tensor) -> np.ndarray | None:
    """Return a NumPy view of a plain tensor (`FastPaths.numpy_view`). ``x.numpy()`` would also copy it."""
    kinds = _PLAIN_DTYPES.get(x._datatype_enum())
    if kinds is None or DEVICE_BY_NAME.get(x.backing_device) is not CPU:
        return None
    array = x._numpy_internal()
    if type(array) is not np.ndarray or array.dtype is not kinds[1] or array.shape != x._shape_tuple():
        return None  # the array is a scalar if the tensor is 0-d
    array.setflags(False)  # type: ignore[call-arg]  # passing it by name takes twice the time
    return array


def _fast_copy(x: Tensor) -> np.ndarray | None:
    """Return a plain tensor's values in new memory (`FastPaths.numpy_copy`)."""
    if x._datatype_enum() not in _PLAIN_DTYPES or DEVICE_BY_NAME.get(x.backing_device) is not CPU:
        return None
    array = x._numpy_internal()
    return array.copy() if type(array) is np.ndarray else np.array(array)  # the latter from a scalar, if it is 0-d


def _fast_export(x: Tensor, alignment: int) -> tuple[Any, str, tuple[int, ...]] | None:
    """Return a plain tensor's capsule, dtype name and shape, or None for other tensors (`FastPaths.dlpack_export`)."""
    kinds, where = _PLAIN_DTYPES.get(x._datatype_enum()), x.backing_device
    if kinds is None or DEVICE_BY_NAME.get(where) is not CPU or not where.endswith("CPU:0"):
        return None
    capsule = to_dlpack(x)
    if dlpack.data_address(capsule) % (alignment or kinds[1].itemsize):
        return None
    return capsule, kinds[0], x._shape_tuple()


def _fast_import(capsule: Any, dtype: str, shape: tuple[int, ...]) -> Tensor | None:
    """Return a tensor over a plain capsule (`FastPaths.dlpack_import`)."""
    handle = context()._context_handle
    if handle is None:  # TensorFlow has not started yet; the function below crashes on None
        return None
    # This is `tf.experimental.dlpack.from_dlpack` without its two wrappers, which take a third of its time.
    x = TFE_FromDlpackCapsule(capsule, handle)
    faithful = x._datatype_enum() == _NUMBERS.get(dtype) and x._shape_tuple() == shape
    return x if faithful and DEVICE_BY_NAME.get(x.backing_device) is CPU else None


def _has_same_cuda_number(index: int) -> bool:
    """Return True if CUDA gives the GPU the same number: DLPack uses CUDA's, TensorFlow gives its own (2.21).

    The numbers differ after ``tf.config.set_visible_devices``, and if a GPU is split into several logical devices.
    """
    shown = logical_gpus("gpu")[: index + 1]
    return bool(shown == tf.config.list_physical_devices("GPU")[: index + 1])


class TensorflowDlpack(TensorflowTensors):
    """The mixin for DLPack."""

    fast_paths = FastPaths(
        host_makers=HOST_MAKERS,
        host_copy={EAGER: copy_on_host},
        numpy_view={EAGER: _fast_view},
        numpy_copy={EAGER: _fast_copy},
        dlpack_export={EAGER: _fast_export},
        dlpack_import=_fast_import,
    )
    alignment = 64
    """The alignment that TensorFlow's operators check (``IsAligned``): Eigen's largest, for AVX-512 (2.16 to 2.21)."""

    def to_dlpack(self, x: Tensor) -> Any:
        if self.is_tracer(x):
            raise messages.tracing(self, "convert", "convert before or after the compiled function")
        require_dense(x, "a {} has no counterpart in DLPack", ConversionError)
        if self.dtype_name(x) not in NAMES:
            msg = f"DLPack has no dtype for TensorFlow's {self.dtype_name(x)}"
            raise ConversionError(msg, "cast it first: tf.cast(x, 'float32')")
        where, value = self.device_of(x), tf.convert_to_tensor(x)
        if self.is_accelerator(where) and not _has_same_cuda_number(where.index):
            msg = f"TensorFlow's {where} cannot be shared: CUDA uses its number for another GPU"
            raise ConversionError(
                msg,
                "leave out copy=False to copy it, and select GPUs with ds.set_visible_devices, for all frameworks",
            )
        if not self.is_accelerator(where):
            where = CPU
            if not value.backing_device.endswith("CPU:0"):
                with tf.device("/CPU:0"):
                    value = value._copy()  # shares the memory, but the device is the host
        cards = dlpack.CUDA if tf.test.is_built_with_cuda() else dlpack.ROCM
        device = (dlpack.CPU, 0) if where is CPU else (cards, where.index)
        return dlpack.Exporter(device, lambda stream: self._capsule(value, where))

    def _capsule(self, value: Tensor, where: Device) -> Any:
        """Return an unversioned capsule, after pending work on a GPU is done."""
        self.synchronize(where)
        return tf.experimental.dlpack.to_dlpack(value)

    def from_dlpack(self, source: Any) -> Tensor:
        try:
            return self._import_capsule(source.__dlpack__())
        except Exception as error:
            raise messages.not_accepted(self, source, error) from error

    def _import_capsule(self, capsule: Any) -> Tensor:
        offered = dlpack.read(capsule)
        self._check_memory(offered)
        result = tf.experimental.dlpack.from_dlpack(capsule)
        if result.dtype.name != offered.dtype:
            msg = f"TensorFlow would read its {offered.dtype} as {result.dtype.name}"
            raise BufferError(msg)
        return result

    def _check_memory(self, offered: dlpack.TensorInfo) -> None:
        """Refuse memory that TensorFlow cannot use."""
        if offered.dtype not in NAMES:
            msg = f"TensorFlow has no dtype {offered.dtype}"
            raise BufferError(msg)
        kind, index = offered.device
        card = kind in (dlpack.CUDA, dlpack.ROCM) and not self.simulated
        if kind != dlpack.CPU and not (card and index < self.count("gpu")):
            msg = f"TensorFlow cannot use memory of the DLPack device {offered.device}"
            raise BufferError(msg)
        if card and not _has_same_cuda_number(index):
            msg = f"tf.config numbers GPUs differently from CUDA, so {offered.device} would be another GPU"
            raise BufferError(msg)
        if 0 in offered.shape:
            return
        if not offered.is_contiguous:
            msg = "TensorFlow's tensors are contiguous, but this array is not"
            raise BufferError(msg)
        if card and offered.address % self.alignment:
            msg = f"TensorFlow's operators need an address that is a multiple of {self.alignment} bytes"
            raise BufferError(msg)
