"""Sharing memory with other frameworks through DLPack.

Traps mended here:

* With x64 off, ``from_dlpack`` gives int32 for int64 and float32 for float64: see `wide`.
* Memory that is not 64-byte aligned is silently copied by new versions of JAX, and shared by old ones, whose
  compiled code expects the alignment: here it is refused, and goes through the host.
* Paddle gives ``None`` for a CPU's index, which JAX does not take.
* JAX exports every CPU device as ``(CPU, 0)``: a simulated GPU would come back as the host, so it exports nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax

from devshim.backend import Backend
from devshim.device import CPU
from devshim.errors import ConversionError
from devshim_backends._jax.creation import NAMES
from devshim_backends._jax.devices import concrete
from devshim_backends._jax.runtime import JaxRuntime
from devshim_backends._jax.tensors import ALIGNMENT, enable_x64

if TYPE_CHECKING:
    from devshim.backend import Tensor

_HOST = (1, 3, 11)
"""DLPack's device types of host memory: plain, and pinned for CUDA or ROCm."""


class _Source:
    """An exporter whose device has an index."""

    def __init__(self, source: Any, kind: int) -> None:
        self._source = source
        self._device = (kind, 0)

    def __dlpack__(self, **options: Any) -> Any:
        return self._source.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device


class JaxInterop(JaxRuntime, Backend):
    """The room "interop" of the JAX adapter."""

    def to_dlpack(self, x: Tensor) -> Any:
        if concrete(x) is not x:
            raise self._untraceable("convert")
        device = self.device_of(x)
        if device is not CPU and device.index < self.shown:
            raise ConversionError(f"{device} is simulated, and its memory is not shared", "copy through the host")
        if self.dtype_name(x) not in NAMES:
            raise ConversionError(f"DLPack has no type for a JAX array of {self.dtype_name(x)}", "cast it first")
        return x

    def from_dlpack(self, source: Any) -> Tensor:
        if self.compiling():
            raise self._untraceable("convert")
        try:
            kind, index = source.__dlpack_device__()
            exporter = _Source(source, int(kind)) if index is None else source
            with enable_x64(True):
                x = jax.dlpack.from_dlpack(exporter, copy=False)
        except Exception as error:  # whatever the exporter or XLA objects to
            raise ConversionError(
                f"JAX cannot share this memory: {str(error).splitlines()[0] if str(error) else type(error).__name__}",
                "let the values be copied through the host",
            ) from error
        if int(kind) in _HOST and x.size and x.unsafe_buffer_pointer() % ALIGNMENT:
            raise ConversionError(
                f"JAX needs memory aligned to {ALIGNMENT} bytes, and this is not",
                "let the values be copied through the host",
            )
        return x
