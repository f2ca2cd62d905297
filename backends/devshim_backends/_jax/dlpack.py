"""Sharing memory with other frameworks through DLPack.

Traps mended here:

* With x64 off, ``from_dlpack`` gives int32 for int64 and float32 for float64: see `wide`.
* Memory that is not 64-byte aligned is copied with a line on stderr by JAX 0.5 to 0.8, whatever ``copy=False`` says,
  and shared by older ones, whose compiled code expects the alignment.  So the address is read out of the capsule
  before JAX sees it, and what is not aligned is refused: it goes through the host.
* An array that does not stand in C order breaks later, when it is computed with: JAX 0.4 ends in an `AssertionError`,
  0.10 gives wrong values as soon as ``device_put`` has moved it (jax-ml/jax#7657, #25066).  So it is refused, and goes
  through the host.  An axis of one element may have any stride, and JAX takes that for another order: it gets none.
* Paddle gives ``None`` for a CPU's index, which JAX does not take.
* JAX exports every CPU device as ``(CPU, 0)``: a simulated GPU would come back as the host, so it exports nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import jax
import numpy as np
from jax._src.array import ArrayImpl

from devshim.contract.backend import Backend
from devshim.devices.device import CPU
from devshim.errors import ConversionError, messages
from devshim.transfers import dlpack
from devshim_backends._jax.creation import NAMES
from devshim_backends._jax.devices import DEVICES, host, is_beside
from devshim_backends._jax.runtime import JaxRuntime
from devshim_backends._jax.tensors import ALIGNMENT, enable_x64, is_compiling, primal
from devshim_backends._jax.transfers.addresses import address_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from devshim.contract.backend import Tensor


def _library() -> Any:
    """The module of JAX's compiled half."""
    try:
        from jax._src.lib import _jax

        return _jax
    except ImportError:  # before JAX 0.6
        from jax._src.lib import xla_client

        return xla_client._xla


_PLAIN = {np.dtype(name): name for name in NAMES - {"bfloat16"}}
"""The dtypes of plain arrays, with their name."""
_DTYPES = {name: dtype for dtype, name in _PLAIN.items()}
_give: Any = _library().buffer_to_dlpack_managed_tensor
"""What ``x.__dlpack__()`` ends in, in a fifth of its time."""
_take: Any = _library().dlpack_managed_tensor_to_buffer
"""What `jax.dlpack.from_dlpack` ends in (JAX 0.4.30 to 0.10); it goes on to ``jnp.asarray``, which takes nine tenths of
its time, and with x64 off halves 64-bit values. What later versions take beside capsule, device and stream (``copy``,
and in 0.10.2 ``dl_device_type``) has defaults."""


def _view(x: Tensor) -> np.ndarray | None:
    """NumPy over a plain array (see `Backend.viewers`): its buffer, which is read-only, and valid until let go of.

    ``np.asarray(x)`` is as fast, but leaves the view in ``x``, which could then not be donated to a function any more.
    """
    if x.dtype not in _PLAIN or DEVICES.get(x.sharding._device) is not CPU:
        return None
    array = np.asarray(memoryview(x))  # waits until the values are there
    return array if array.dtype == x.dtype and array.shape == x.shape and not array.flags.writeable else None


def _lend(x: Tensor, alignment: int) -> tuple[Any, str, tuple[int, ...]] | None:
    """A plain array's capsule (see `Backend.lenders`); a consumer refuses what does not stand in C order."""
    name = _PLAIN.get(x.dtype)
    if name is None or DEVICES.get(x.sharding._device) is not CPU:
        return None
    if address_of(x) % (alignment or x.dtype.itemsize):
        return None
    return _give(x.block_until_ready()), name, x.shape


def _borrow(capsule: Any, dtype: str, shape: tuple[int, ...]) -> Tensor | None:
    """An array over a plain capsule (see `Backend.borrower`)."""
    address = dlpack.address(capsule)
    # An axis of one element may have strides that want mending, and no elements have no address.
    if not address or 0 in shape or (1 in shape and len(shape) > 1) or is_compiling():
        return None
    x = _take(capsule, host(), None)
    faithful = x.dtype == _DTYPES.get(dtype) and x.shape == shape and address_of(x) == address
    return x if faithful and DEVICES.get(x.sharding._device) is CPU else None


class JaxInterop(JaxRuntime, Backend):
    """The room "interop" of the JAX adapter."""

    viewers: ClassVar[Mapping[type, Callable[[Any], Any]]] = {ArrayImpl: _view}
    lenders: ClassVar[Mapping[type, Callable[[Any, int], Any]]] = {ArrayImpl: _lend}
    borrower = staticmethod(_borrow)
    alignment = ALIGNMENT
    """Below it JAX itself copies (0.10), or computes by code that expects it (older ones)."""

    def to_dlpack(self, x: Tensor) -> Any:
        value = primal(x)  # under `jax.grad` gradients stay here, as in every other framework
        if value is None:
            raise self._untraceable("convert")
        if not isinstance(value, jax.Array):  # `jax.grad` wraps NumPy arrays and numbers as they are
            raise ConversionError(f"a {type(value).__name__} is no JAX array", "let it be copied")
        device = self.device_of(x)
        if device is not CPU and device.index < self.labelled:
            raise ConversionError(f"{device} is simulated, and its memory is not shared", "leave copy out to copy it")
        if len(value.sharding.device_set) == 1 and is_beside(value):
            raise ConversionError("memory that is pinned for a card is not shared", "leave copy out to copy it")
        if self.dtype_name(x) not in NAMES:
            raise ConversionError(f"DLPack has no type for a JAX array of {self.dtype_name(x)}", "cast it first")
        return value.block_until_ready() if device is CPU else value

    def from_dlpack(self, source: Any) -> Tensor:
        if self.compiling():
            raise self._untraceable("convert")
        try:
            return _import(source)
        except Exception as error:  # whatever the exporter or XLA objects to
            raise messages.not_taken(self, source, error) from error


def _import(source: Any) -> Tensor:
    kind, _ = source.__dlpack_device__()
    if int(kind) not in dlpack.HOST:
        with enable_x64(True):
            return jax.dlpack.from_dlpack(dlpack.Checked(source, _check))
    capsule = source.__dlpack__()
    offered = dlpack.read(capsule)
    _check(offered)
    dlpack.settle_strides(capsule)
    with enable_x64(True):  # JAX takes no bare capsule
        x = jax.dlpack.from_dlpack(dlpack.Exporter((dlpack.CPU, 0), lambda stream: capsule))
    if x.size and address_of(x) != offered.address:
        raise BufferError("it made a copy")
    return x


def _check(offered: dlpack.Offer) -> None:
    if not offered.is_contiguous:
        raise BufferError("JAX's operators want C order, and it has other strides")
