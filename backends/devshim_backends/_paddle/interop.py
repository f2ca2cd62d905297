"""Sharing memory with other frameworks through DLPack.

Requirements this module answers:

* What goes out and what comes in is looked at in the capsule itself and compared with the tensor.  Paddle 2.6
  exports bool as uint8 and a strided view as if it were contiguous, reads a strided capsule as if it were contiguous,
  and takes negative strides for sizes: wrong values, without an error.  3.x does the first three right.
* ``__dlpack_device__`` of a Paddle tensor names the host ``(1, None)``, which JAX refuses; here it has an index.
* uint16, uint32 and uint64 are refused: Paddle 3.x takes them in, and can then not even copy them.
* Never a writable tensor over memory whose owner says that it is read-only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import paddle
from paddle.utils import dlpack

from devshim import _dlpack, _refusals
from devshim.errors import ConversionError
from devshim_backends._paddle.creation import NAMES
from devshim_backends._paddle.tensors import PaddleTensors

if TYPE_CHECKING:
    from devshim.backend import Tensor

_KINDS = {"cpu": _dlpack.CPU, "gpu": _dlpack.CUDA}
"""devshim's kind -> DLPack's DLDeviceType, of those that Paddle exports."""

_STRIDED = "FLAGS_use_stride_kernel"
_UNKNOWN = frozenset({"uint16", "uint32", "uint64"})
"""What Paddle 3.x takes in, and can then not even copy."""


class PaddleInterop(PaddleTensors):
    """The room of interop."""

    def to_dlpack(self, x: Tensor) -> Any:
        if not x.is_dense() or x.dtype not in NAMES:
            raise self._unusable(x, "be shared")
        device = self.device_of(x)
        if device.kind not in _KINDS:
            raise ConversionError(f"PaddlePaddle does not export {device.kind} tensors through DLPack")
        plain = x.detach()  # gradients stay here; a Parameter becomes a plain tensor
        checked = [self._capsule(plain)]  # what Paddle cannot export is refused here, not in the consumer

        def export(stream: Any) -> Any:
            if stream != -1:  # which says that the consumer does without
                self.synchronize(device)
            return checked.pop() if checked else self._capsule(plain)

        return _dlpack.Exporter((_KINDS[device.kind], device.index), export)

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
            raise _refusals.not_taken(self, source, error) from error

    def _taken(self, capsule: Any) -> Tensor:
        offered = _look(capsule)
        if not (offered.is_contiguous or paddle.get_flags(_STRIDED)[_STRIDED]):
            raise BufferError(f"it is not contiguous, and {_STRIDED} is off")
        made = dlpack.from_dlpack(capsule)
        if not self._is_same(offered, made):
            raise BufferError("PaddlePaddle took it for another dtype, shape or order of values")
        return made

    def _is_same(self, offered: _dlpack.Offer, x: Tensor) -> bool:
        """Whether a tensor has the dtype and shape offered, and reads the same values at the same address."""
        if (offered.dtype, offered.shape) != (self.dtype_name(x), tuple(x.shape)):
            return False
        if 0 in offered.shape:
            return True
        steps = zip(offered.shape, offered.strides, x.strides, strict=True)
        return offered.address == x.data_ptr() and all(size == 1 or step == own for size, step, own in steps)


def _look(capsule: Any) -> _dlpack.Offer:
    """What a capsule offers, if Paddle can read it."""
    offered = _dlpack.read(capsule)
    if offered.has_negative_strides:
        raise BufferError("it has negative strides, and PaddlePaddle knows none")
    if offered.dtype in _UNKNOWN:
        raise BufferError(f"PaddlePaddle does not compute with {offered.dtype}")
    return offered
