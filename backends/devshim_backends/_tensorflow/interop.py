"""DLPack: other frameworks over TensorFlow's memory, and TensorFlow over theirs.

Requirements this module answers:

* Never an abort.  TensorFlow ends the process when a string tensor is exported, and when an operator reads an imported
  tensor whose memory is not aligned to 64 bytes, as most of NumPy's and every other slice is (2.16 to 2.21:
  ``Check failed: IsAligned()``).  Both are looked at first: the capsule's header is read before TensorFlow gets it.
* The true device: a simulated card's memory is the host's, and ``CPU:3`` is no device of anybody else.
* 2.16 to 2.19 have no ``__dlpack__``, and no version takes an object that has one: `tf.experimental.dlpack` knows
  capsules alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from devshim import _dlpack, _refusals
from devshim.device import CPU
from devshim.errors import ConversionError
from devshim_backends._tensorflow.tensors import NAMES, TensorflowTensors

if TYPE_CHECKING:
    from devshim.backend import Tensor
    from devshim.device import Device

_ALIGNMENT = 64


class TensorflowInterop(TensorflowTensors):
    """The room of interop."""

    def to_dlpack(self, x: Tensor) -> Any:
        if self.is_tracer(x):
            raise _refusals.tracing(self, "convert", "convert before or after the compiled function")
        self._require_dense(x, "DLPack")
        if self.dtype_name(x) not in NAMES:
            raise ConversionError(f"DLPack has no dtype for TensorFlow's {self.dtype_name(x)}")
        where, value = self.device_of(x), tf.convert_to_tensor(x)
        if not self.is_card(where):
            where = CPU
            if not value.backing_device.endswith("CPU:0"):
                with tf.device("/CPU:0"):
                    value = value._copy()  # shares the memory, under the host's name
        cards = _dlpack.CUDA if tf.test.is_built_with_cuda() else _dlpack.ROCM
        device = (_dlpack.CPU, 0) if where is CPU else (cards, where.index)
        return _dlpack.Exporter(device, lambda stream: self._capsule(value, where))

    def _capsule(self, value: Tensor, where: Device) -> Any:
        """An unversioned capsule; work pending on a card is waited for."""
        self.synchronize(where)
        return tf.experimental.dlpack.to_dlpack(value)

    def from_dlpack(self, source: Any) -> Tensor:
        try:
            return self._taken(source.__dlpack__())
        except Exception as error:
            raise _refusals.not_taken(self, source, error) from error

    def _taken(self, capsule: Any) -> Tensor:
        offered = _dlpack.read(capsule)
        self._check(offered)
        made = tf.experimental.dlpack.from_dlpack(capsule)
        if made.dtype.name != offered.dtype:
            raise BufferError(f"its {offered.dtype} would be read as {made.dtype.name}")
        return made

    def _check(self, offered: _dlpack.Offer) -> None:
        """Refuse memory that TensorFlow cannot live on."""
        if offered.dtype not in NAMES:
            raise BufferError(f"TensorFlow has no dtype {offered.dtype}")
        kind, index = offered.device
        card = kind in (_dlpack.CUDA, _dlpack.ROCM) and not self.simulated
        if kind != _dlpack.CPU and not (card and index < self.count("gpu")):
            raise BufferError(f"TensorFlow has no DLPack device {offered.device}")
        if 0 in offered.shape:
            return
        if not offered.is_contiguous:
            raise BufferError("TensorFlow's tensors are contiguous, and it has other strides")
        if offered.address % _ALIGNMENT:
            raise BufferError(f"TensorFlow's operators need memory aligned to {_ALIGNMENT} bytes, and it is not")
