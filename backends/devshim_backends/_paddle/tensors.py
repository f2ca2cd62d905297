"""PaddlePaddle's tensors: their devices, copies of them, and their host memory.

Requirements that this module meets:

* Gradients flow through a copy. Paddle's own moves (``.to``, ``.cpu``, ``.cuda``, ``_copy_to``) return a leaf, and
  the result of ``.to`` even claims to need a gradient: the backward pass succeeds and the source gets none (3.3;
  PaddlePaddle/Paddle#72246 restores only the flag). So a copy that needs a gradient goes through a `PyLayer`.
* A copy always has new memory, and is never a second ``Parameter``: ``_copy_to`` of a parameter returns another with
  the same *name*, by which optimizers and checkpoints identify it. The source stays intact: ``.to`` empties it if a
  card is full.
* bfloat16 becomes NumPy's own bfloat16 (``ml_dtypes``), not the uint16 bits that ``.numpy()`` returns. NumPy's
  uint16, which Paddle takes for bfloat16 bits, is refused.
* A sparse tensor is refused: ``_copy_to`` of one reads its shape wrong (3.3).
"""

from __future__ import annotations

from contextlib import nullcontext
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import paddle
from paddle.autograd import PyLayer
from paddle.utils.dlpack import from_dlpack

from devshim.contract.backend import Backend
from devshim.devices import cuda
from devshim.devices.device import CPU
from devshim.devices.dtypes import numpy_dtype
from devshim.errors import ConversionError, DevshimError, UnsupportedError, messages
from devshim.transfers import dlpack
from devshim_backends._paddle import devices, scopes
from devshim_backends._paddle.buffers import HostMemory
from devshim_backends._paddle.creation import (
    DTYPE_NAMES,
    FLOAT8,
    NEW_ATTRIBUTES,
    NUMPY_DTYPES,
    EagerTensor,
    make_constant,
    unsupported_name,
)
from devshim_backends._paddle.devices import HOST, KINDS_OF_MEMORY, device_at, device_when_tracing

if TYPE_CHECKING:
    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device

SYMBOLIC_TYPES = tuple(
    cls
    for cls in (paddle.static.Variable, getattr(getattr(paddle, "pir", None), "Value", None))
    if isinstance(cls, type)
)
"""The types that represent a tensor while a function or a static program is being built."""

MODEL_TYPES = (
    *(paddle.nn.Layer, paddle.optimizer.Optimizer, paddle.optimizer.lr.LRScheduler),
    *(paddle.amp.GradScaler, paddle.amp.AmpScaler),
)
"""The types that move as one object."""

_SYMBOLIC_SET = frozenset(SYMBOLIC_TYPES)
HOST_PLACE = paddle.CPUPlace()
_ITEM_SIZES = {
    **{name: dtype.itemsize for name, dtype in NUMPY_DTYPES.items()},
    **dict.fromkeys(FLOAT8, 1),
    "bfloat16": 2,
}
STRIDES_FLAG = "FLAGS_use_stride_kernel"
"""True if Paddle reads strides; on simulated GPUs it does not."""
MAX_AXES = 9
"""The largest number of axes of a tensor (``kMaxRank`` in Paddle's ``ddim.h``, 3.0 to 3.3)."""
_TRACING_HINT = "call it before or after the compiled function, or compile with to_static(full_graph=False)"


def copy_to_host(x: Tensor) -> Tensor | None:
    """Return a host copy of a plain tensor that needs no gradient: the same as `copy_to`, in a third of the time."""
    only_host = devices.only_host
    if not x.stop_gradient or not x.is_dense() or not (only_host or x.place._type() in HOST):
        return None
    if x.element_size() == 16 and _is_unaligned_view(x):  # complex128; comparing two dtypes takes 0.5 us (3.3.1)
        return None
    try:
        made = x._copy_to(HOST_PLACE, True)
    except SystemError:  # handled by `PaddleTensors.copy_to`
        return None
    made.name = ""  # the copy has the source's name, if that was generated; now it gets its own on demand
    return made if only_host or made.place._type() in HOST else None


class PaddleTensors(Backend):
    """The mixin for tensors."""

    def is_tensor(self, cls: type) -> bool:
        return issubclass(cls, (paddle.Tensor, *SYMBOLIC_TYPES))

    def is_model(self, cls: type) -> bool:
        return issubclass(cls, MODEL_TYPES)

    def is_tracer(self, x: Tensor) -> bool:
        # isinstance(x, Variable) is true for every tensor: Paddle overrides it
        return type(x) is not EagerTensor and issubclass(type(x), SYMBOLIC_TYPES)

    def device_of(self, x: Tensor) -> Device:
        if type(x) is not EagerTensor and type(x) in _SYMBOLIC_SET:  # reading its place raises a warning (3.x)
            return device_when_tracing(self, "device_of", _TRACING_HINT)
        try:
            place = x.place
            found = KINDS_OF_MEMORY[place._type()]  # a tenth faster than `get`
        except KeyError:
            return self._name_place(x.place)
        except Exception as error:
            return self._explain_no_device(x, error)
        return found if found is not None else self._name_place(place)

    def _name_place(self, place: Any) -> Device:
        found = device_at(place)
        if found is None and "undefined" in str(place):  # a parameter made under `paddle.LazyGuard`
            msg = "this tensor has no memory yet, so it does not have a device"
            raise UnsupportedError(msg, "give it values first: layer.initialize()")
        if found is None:
            msg = f"this tensor is on {place}, a kind of device that devshim does not support"
            raise UnsupportedError(msg, "move it with PaddlePaddle first: x.cpu()")
        return found

    def _explain_no_device(self, x: Tensor, error: Exception) -> Device:
        if self.is_tracer(x):
            return device_when_tracing(self, "device_of", _TRACING_HINT)
        msg = "this tensor has no memory yet, so it does not have a device"
        raise UnsupportedError(msg, "give it values first: paddle.zeros(x.shape)") from error

    def copy_to(self, x: Tensor, device: Device, non_blocking: bool = False) -> Tensor:
        if type(x) is not EagerTensor and self.is_tracer(x):
            device_when_tracing(self, "copy", _TRACING_HINT)
            return paddle.assign(x)
        if not x.is_dense():
            raise self._make_unusable_error(x, "be copied")
        # From card to card Paddle copies on the target's stream, which does not wait for the source's stream.
        blocking = device is CPU or not non_blocking or x.place._type() not in HOST
        place = self.to_native(device)
        if x.dtype == paddle.complex128 and _is_unaligned_view(x):
            return EagerTensor(value=self.to_numpy(x, copy=True), place=place, **NEW_ATTRIBUTES)
        if x.stop_gradient:
            try:
                return _copy_detached(x.detach(), place, blocking)
            except SystemError:
                if paddle.get_flags(STRIDES_FLAG)[STRIDES_FLAG]:
                    raise
                # It came through DLPack with strides, which Paddle reads only for NumPy while GPUs are simulated.
                return self.from_numpy(self.to_numpy(x, copy=True), device, copy=True)
        return Copy.apply(x, place, blocking)

    def to_numpy(self, x: Tensor, copy: bool) -> np.ndarray:
        if self.is_tracer(x):
            raise messages.tracing(self, "to_numpy", _TRACING_HINT)
        name = self.dtype_name(x)
        if not x.is_dense() or name not in _ITEM_SIZES:
            raise self._make_unusable_error(x, "become a NumPy array")
        if copy and not (name == "complex128" and _is_unaligned_view(x)):
            # From a card that is not CUDA's current one, the copy would not wait for pending work on that card.
            with nullcontext() if devices.only_host else scopes.cuda_scope(x.place):
                array = np.asarray(x.detach().numpy())
        elif x.place._type() not in HOST:
            raise messages.copy_needed(self.device_of(x), CPU)
        elif prod(x.shape):
            plain = x.detach()
            kind = storage_dtype(name)
            strides = tuple(step * kind.itemsize for step in plain.strides)
            array = np.array(HostMemory(plain, plain.data_ptr(), tuple(x.shape), strides, kind), copy=copy)
        else:
            array = np.empty(tuple(x.shape), storage_dtype(name))
        return array if name in NUMPY_DTYPES else array.view(numpy_dtype(name))

    def from_numpy(self, array: np.ndarray, device: Device, copy: bool) -> Tensor:
        name = array.dtype.name
        self.dtype(name)  # refuses what Paddle lacks
        if array.ndim > MAX_AXES:
            raise ConversionError(explain_axes(array.ndim), "reshape it first")
        if not paddle.in_dynamic_mode():
            return make_constant(self, array, name, copy)
        if name not in NUMPY_DTYPES:
            array = array.view(storage_dtype(name))
        if not copy:
            if device is not CPU:
                raise messages.copy_needed(CPU, device)
            if not (array.flags.c_contiguous and array.flags.aligned and array.flags.writeable):
                why = "it is not contiguous" if array.flags.writeable else "it is read-only"
                raise messages.cannot_share("this array", why)
        if name in FLOAT8:
            if not copy:
                raise messages.cannot_share("this array", f"PaddlePaddle cannot read NumPy's {name} in place")
            return self._from_float8(array, name, device)
        return EagerTensor(value=array, place=self.to_native(device), zero_copy=not copy, **NEW_ATTRIBUTES)

    def _from_float8(self, array: np.ndarray, name: str, device: Device) -> Tensor:
        """Return a tensor of an array's bytes, for a dtype that Paddle reads from DLPack but not from NumPy."""
        capsule = dlpack.set_dtype(np.array(array, order="C").__dlpack__(), name)
        managed = dlpack.managed_tensor(capsule)
        managed.tensor.strides = None  # C order; for empty arrays Paddle misreads NumPy's strides
        made = from_dlpack(capsule)
        return made if device is CPU else made._copy_to(self.to_native(device), True)

    def detach(self, x: Tensor) -> Tensor:
        return x if x.stop_gradient else x.detach()

    def dtype_name(self, x: Tensor) -> str:
        return DTYPE_NAMES.get(x.dtype) or unsupported_name(x.dtype)

    def shape(self, x: Tensor) -> tuple[int, ...]:
        return tuple(x.shape)

    def is_writable(self, x: Tensor) -> bool:
        return not self.is_tracer(x)

    def nbytes(self, x: Tensor) -> int:
        size = _ITEM_SIZES.get(self.dtype_name(x))
        return int(prod(x.shape)) * (int(x.element_size()) if size is None else size)

    def synchronize(self, device: Device) -> None:
        if device is CPU:
            return
        # Waiting creates a context, of half a gigabyte, on a CUDA card that has none. Paddle may compute there in
        # memory that it has reserved, or in another framework's.
        reserved = devices.is_custom(device) or devices.core.device_memory_stat_peak_value("Reserved", device.index)
        if reserved or cuda.has_context(device.index):
            paddle.device.synchronize(self.to_native(device))

    def _make_unusable_error(self, x: Tensor, what: str) -> DevshimError:
        """Return the error for a tensor that is sparse, or has a dtype that Paddle does not compute with."""
        if not x.is_dense():
            return UnsupportedError(f"a sparse PaddlePaddle tensor cannot {what}", "call x.to_dense() first")
        return messages.no_dtype(self, unsupported_name(x.dtype), "int64")


def _is_unaligned_view(x: Tensor) -> bool:
    """Return True if Paddle cannot copy this complex128: it uses an operator that crashes on unaligned memory (3.3)."""
    if not x._is_initialized() or x.place._type() not in HOST or not paddle.get_flags(STRIDES_FLAG)[STRIDES_FLAG]:
        return False  # without strides it copies the whole memory, and some tensors must not be asked for an address
    return bool(x.data_ptr() % 16 and not x.is_contiguous())


def explain_axes(count: int) -> str:
    """Return why Paddle cannot have a tensor with that many axes, in the words of an error from Paddle."""
    return f"a PaddlePaddle tensor has at most {MAX_AXES} axes, and this array has {count}"


def storage_dtype(name: str) -> np.dtype:
    """Return NumPy's dtype for memory of a dtype: the same, or integers of its width; Paddle reads u2 as bfloat16."""
    return NUMPY_DTYPES.get(name) or np.dtype(f"u{_ITEM_SIZES[name]}")


def _copy_detached(x: Tensor, place: Any, blocking: bool) -> Tensor:
    """Return a copy without a gradient; from a CUDA card, made while that is Paddle's current one."""
    if devices.only_host:
        return x._copy_to(place, blocking)
    with scopes.cuda_scope(x.place):
        return x._copy_to(place, blocking)


class Copy(PyLayer):  # type: ignore[misc]  # PaddlePaddle is Any to the type checker
    """A copy on another place, whose gradient is copied back; it is differentiable for gradients of gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, place: Any, blocking: bool) -> Tensor:
        ctx.source = x.place
        return _copy_detached(x.detach(), place, blocking)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        if gradient.stop_gradient:
            return _copy_detached(gradient, ctx.source, True)
        return Copy.apply(gradient, ctx.source, True)
