"""DLPack for JAX: sharing memory with other frameworks.

Workarounds:

* With x64 off, ``from_dlpack`` gives int32 for int64 and float32 for float64: see `wide`.
* JAX up to 0.8 copies memory that is not 64-byte aligned and prints a line to stderr, even with ``copy=False``.
  So devshim reads the address from the capsule
  before JAX sees it and refuses unaligned memory, which is then copied through the host.
* An array that is not in C order fails later, when it is used: 0.10 gives wrong
  values once ``device_put`` has moved it (jax-ml/jax#7657, #25066). So it is refused and copied through the host. An
  axis of one element may have any stride, which JAX takes for another order, so devshim removes the stride.
* Paddle gives ``None`` as a CPU's index, which JAX does not accept.
* JAX exports every CPU device as ``(CPU, 0)``, so an array on a simulated GPU would arrive as a host array. devshim
  does not export it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax._src.array import ArrayImpl
from jax._src.core import trace_state_clean
from jax._src.lib import _jax

from devshim.contract.backend import Backend
from devshim.contract.fast_paths import FastPaths
from devshim.devices.device import CPU
from devshim.errors import ConversionError, messages
from devshim.transfers import dlpack
from devshim_backends._jax.buffers import address_of
from devshim_backends._jax.creation import NAMES
from devshim_backends._jax.devices import DEVICES, host_device, in_gpu_host_memory
from devshim_backends._jax.host_tensors import ALIGNMENT
from devshim_backends._jax.internals.clients import is_on_one_device
from devshim_backends._jax.internals.widths import enable_x64
from devshim_backends._jax.runtime import JaxRuntime
from devshim_backends._jax.tensors import is_compiling, primal

if TYPE_CHECKING:
    from devshim.contract.backend import Tensor


_PLAIN = {np.dtype(name): name for name in NAMES - {"bfloat16"}}
"""Maps the dtypes of plain arrays to their names."""
_DTYPES = {name: dtype for dtype, name in _PLAIN.items()}
_export_buffer: Any = _jax.buffer_to_dlpack_managed_tensor
"""The function that ``x.__dlpack__()`` calls in the end; calling it directly takes a fifth of the time."""
_import_capsule: Any = _jax.dlpack_managed_tensor_to_buffer
"""The function that `jax.dlpack.from_dlpack` calls (JAX 0.7.2 to 0.10).

`from_dlpack` then calls ``jnp.asarray``, which takes nine tenths of its time and truncates 64-bit values with x64 off.
Later versions have more parameters than capsule, device and stream (``copy``, in 0.10.2 ``dl_device_type``), all with
defaults.
"""


def _fast_view(x: Tensor) -> np.ndarray | None:
    """Return a NumPy view of a plain array (see `FastPaths.numpy_view`): its buffer, read-only, valid while referenced.

    ``np.asarray(x)`` is as fast, but stores the view in ``x``, after which ``x`` cannot be donated to a function.
    """
    if x.dtype not in _PLAIN or DEVICES.get(x.sharding._device) is not CPU:
        return None
    array = np.asarray(memoryview(x))  # waits until the values are computed
    return array if array.dtype == x.dtype and array.shape == x.shape and not array.flags.writeable else None


def _fast_copy(x: Tensor) -> np.ndarray | None:
    """Return a plain array's values in new memory (see `FastPaths.numpy_copy`)."""
    dtype = x.dtype
    if dtype not in _PLAIN or DEVICES.get(x.sharding._device) is not CPU:
        return None
    array = np.array(memoryview(x))  # waits until the values are computed
    return array if array.dtype == dtype and array.shape == x.shape else None


def _is_traced() -> bool:
    """Return False if JAX is certainly not tracing (see `FastPaths.reading`)."""
    return not trace_state_clean()


def _fast_export(x: Tensor, alignment: int) -> tuple[Any, str, tuple[int, ...]] | None:
    """Return a plain array's capsule (`FastPaths.dlpack_export`). The consumer refuses an array not in C order."""
    name = _PLAIN.get(x.dtype)
    if name is None or DEVICES.get(x.sharding._device) is not CPU:
        return None
    if address_of(x) % (alignment or x.dtype.itemsize):
        return None
    return _export_buffer(x.block_until_ready()), name, x.shape


def _fast_import(capsule: Any, dtype: str, shape: tuple[int, ...]) -> Tensor | None:
    """Return an array over a plain capsule (see `FastPaths.dlpack_import`)."""
    address = dlpack.data_address(capsule)
    # The slow path corrects strides of axes with one element; an array without elements has no address.
    if not address or 0 in shape or (1 in shape and len(shape) > 1) or is_compiling():
        return None
    x = _import_capsule(capsule, host_device(), None)
    faithful = x.dtype == _DTYPES.get(dtype) and x.shape == shape and address_of(x) == address
    return x if faithful and DEVICES.get(x.sharding._device) is CPU else None


class JaxDlpack(JaxRuntime, Backend):
    """The mixin for DLPack."""

    fast_paths = FastPaths(
        reading=_is_traced,
        numpy_view={ArrayImpl: _fast_view},
        numpy_copy={ArrayImpl: _fast_copy},
        dlpack_export={ArrayImpl: _fast_export},
        dlpack_import=_fast_import,
    )
    alignment = ALIGNMENT
    """With a lower alignment JAX copies (0.10), or runs code that expects the alignment (older releases)."""

    def to_dlpack(self, x: Tensor) -> Any:
        value = primal(x)  # under `jax.grad`, gradients do not pass to the other framework, as in all adapters
        if value is None:
            raise self._tracing_error("convert")
        if not isinstance(value, jax.Array):  # `jax.grad` wraps NumPy arrays and numbers without converting them
            msg = f"a {type(value).__name__} is not a JAX array"
            raise ConversionError(msg, "leave copy out to copy it")
        device = self.device_of(x)
        if device is not CPU and device.index < self.simulated_or_removed:
            msg = f"the memory of a simulated GPU ({device}) cannot be shared"
            raise ConversionError(msg, "leave copy out to copy it")
        if is_on_one_device(value) and in_gpu_host_memory(value):
            msg = "the pinned host memory of a GPU cannot be shared"
            raise ConversionError(msg, "leave copy out to copy it")
        if self.dtype_name(x) not in NAMES:
            msg = f"DLPack does not support the dtype {self.dtype_name(x)} of this JAX array"
            raise ConversionError(msg, "cast it first")
        return value.block_until_ready() if device is CPU else value

    def from_dlpack(self, source: Any) -> Tensor:
        if self.compiling():
            raise self._tracing_error("convert")
        try:
            return _import(source)
        except Exception as error:  # the exporter and XLA raise various types
            raise messages.not_accepted(self, source, error) from error


def _import(source: Any) -> Tensor:
    kind, _ = source.__dlpack_device__()
    if int(kind) not in dlpack.HOST:
        with enable_x64(True):
            return jax.dlpack.from_dlpack(dlpack.ValidatingExporter(source, _require_c_order))
    capsule = source.__dlpack__()
    offered = dlpack.read(capsule)
    _require_c_order(offered)
    dlpack.normalize_strides(capsule)
    with enable_x64(True):  # JAX does not accept a bare capsule, so it gets an exporter
        x = jax.dlpack.from_dlpack(dlpack.Exporter((dlpack.CPU, 0), lambda stream: capsule))
    if x.size and address_of(x) != offered.address:
        raise BufferError("JAX copied it")
    return x


def _require_c_order(offered: dlpack.TensorInfo) -> None:
    if not offered.is_contiguous:
        msg = "JAX's operators need memory in C order, and this is not"
        raise BufferError(msg)
