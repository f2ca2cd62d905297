"""PyTorch's tensors: their devices, copies of them, and their exchange with host memory.

Requirements of this module:

* A copy is always new memory. ``x.to(device)`` returns ``x`` itself if it is on the device already; with ``copy=True``
  it never does, gradients flow through it, and strides (``channels_last``) are kept.
* A copy to the host is complete on return. ``non_blocking=True`` in that direction returns memory that is still being
  written (pytorch/pytorch#140296), so devshim passes it on only for copies to accelerators.
* devshim never writes into a caller's read-only array, and never provokes a warning about one. PyTorch treats such an
  array as writable, so NumPy copies it instead.
* bfloat16 and the 8-bit floats keep their bits on the way to NumPy and back, through the ``ml_dtypes`` package.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.fx
from torch import is_grad_enabled

from devshim.contract.backend import Backend
from devshim.devices.device import CPU
from devshim.devices.dtypes import numpy_dtype
from devshim.errors import ConversionError, UnsupportedError, messages
from devshim_backends._keras.traversal import is_model_or_optimizer
from devshim_backends._torch.creation import NUMPY_DTYPES, SMALL_FLOATS, TORCH_DTYPES
from devshim_backends._torch.devices import DEVICES, NATIVE, TYPES, device_module, has_context, native
from devshim_backends._torch.models.optimizers import OTHER_CLASSES
from devshim_backends._torch.tracing import compiles_here
from devshim_backends._torch.transfers.internals import coalesce, pinned, quantized_parts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device

_NAMES = {dtype: name for name, dtype in TORCH_DTYPES.items()}
_READABLE = frozenset(TORCH_DTYPES[name] for name in NUMPY_DTYPES)
"""The dtypes that PyTorch and NumPy have in common."""
_COPYABLE = {kind: kind for kind in NUMPY_DTYPES.values() if kind.alignment == kind.itemsize}
"""The dtypes in which memory that NumPy calls aligned is aligned for PyTorch: all but the complex ones."""
_PAD = "pad it first: x.to_padded_tensor(0.0)"
_JAGGED = f"{_PAD}, or make it with layout=torch.jagged"
_QUANTIZED_HINT = "call x.dequantize() or x.int_repr() first"
_QUANTIZED_NAMES = ("quint8", "qint8", "qint32", "quint4x2", "quint2x4")
_QUANTIZED = {getattr(torch, name) for name in _QUANTIZED_NAMES if hasattr(torch, name)}


def copy_on_host(x: Tensor) -> Tensor | None:
    """Return a copy of a tensor in host memory, on the host: the same as `copy_to`, in a quarter less time."""
    if x.is_cpu is not True or (not is_grad_enabled() and not compiles_here() and torch.is_inference_mode_enabled()):
        return None
    if x.dtype is torch.complex128 and not _is_aligned(x):
        return None
    try:
        result = x.clone()
    except RuntimeError:
        if not x.is_quantized:  # PyTorch does not clone all of these
            raise
        return None
    return result if result.is_cpu is True else None


def _is_aligned(x: Tensor) -> bool:
    """Return True if PyTorch's operators can read a complex128 tensor; if not, copying it crashes (2.13)."""
    if compiles_here() or x.is_cpu is not True:
        return True
    try:
        return bool(x.data_ptr() % 16 == 0)
    except RuntimeError:  # a tensor of a transformed function, without memory
        return True


def _copy_aligned(x: Tensor) -> Tensor:
    """Return a copy in PyTorch's memory, made as float64, which PyTorch reads at any address; gradients flow."""
    plain = x.conj() if x.is_conj() else x
    negated = plain.is_neg()
    result = torch.view_as_complex(torch.view_as_real(plain._neg_view() if negated else plain).clone())
    result = result._neg_view() if negated else result
    result = result.conj() if x.is_conj() else result
    return result.clone() if negated or x.is_conj() else result


class TorchTensors(Backend):
    """Mixin for tensors."""

    def is_tensor(self, cls: type) -> bool:
        return issubclass(cls, (torch.Tensor, torch.fx.Proxy))

    def is_model(self, cls: type) -> bool:
        return issubclass(cls, (torch.nn.Module, torch.optim.Optimizer, *OTHER_CLASSES)) or is_model_or_optimizer(cls)

    def is_tracer(self, x: Tensor) -> bool:
        return isinstance(x, torch.fx.Proxy)  # torch.compile shows real tensor types and their devices

    def device_of(self, x: Tensor) -> Device:
        device = DEVICES.get(x.device)
        return device if device is not None else self._rare_device_of(x)

    def _rare_device_of(self, x: Tensor) -> Device:
        if isinstance(x, torch.fx.Proxy):
            raise messages.tracing(self, "device_of", "ask before torch.fx traces the function, or use torch.compile")
        device = self.from_native(x.device)
        if device is not None:
            return device
        if x.device.type == "meta":
            msg = "a meta tensor has a shape and a dtype but no data, so it is not on a device"
            raise UnsupportedError(msg, "give it memory first, for example torch.empty_like(x, device='cpu')")
        msg = f"this tensor is on {x.device}, a kind of device that devshim does not support"
        raise UnsupportedError(msg, "move it with PyTorch first: x.cpu()")

    def copy_to(self, x: Tensor, device: Device, non_blocking: bool = False) -> Tensor:
        if x.is_cpu is not True:
            self.device_of(x)  # a meta tensor has no values to copy: device_of refuses it with the usual message
        elif x.dtype is torch.complex128 and not _is_aligned(x):
            x = _copy_aligned(x)
            if device is CPU:
                return x
        if self.simulated and device is not CPU and x.is_mkldnn:
            from devshim_backends._torch.simulation.internals.relabel import require_supported

            require_supported(x)
        target = NATIVE.get(device) or native(device)
        non_blocking = non_blocking and device is not CPU
        if not is_grad_enabled() and not compiles_here() and torch.is_inference_mode_enabled():
            with torch.inference_mode(False), torch.no_grad():  # otherwise a model moved here could not be trained
                return x.to(target, None, non_blocking, True)
        if x.is_cpu is not (target.type == "cpu") and not compiles_here() and pinned.is_large(x, target):
            return pinned.copy_to(x, target, non_blocking)
        if device is CPU and x.is_quantized and x.is_cpu:
            return quantized_parts.copy_on_host(x)
        return x.to(target, None, non_blocking, True)  # dtype, non_blocking, copy: by name the call costs a tenth more

    def copy_many(self, xs: Sequence[Tensor], device: Device, non_blocking: bool = False) -> Iterable[Tensor]:
        target = NATIVE.get(device) or native(device)
        if self.simulated or torch.is_inference_mode_enabled() or not pinned.may_apply(target):
            return super().copy_many(xs, device, non_blocking)
        return coalesce.copy_all(xs, target, lambda x: self.copy_to(x, device, non_blocking), non_blocking)

    def to_numpy(self, x: Tensor, copy: bool) -> np.ndarray:
        if not copy and type(x) is torch.Tensor and x.is_cpu is True and x.dtype in _READABLE and not x.requires_grad:
            with suppress(RuntimeError, TypeError):  # PyTorch makes the checks below too, with other messages
                if x.data_ptr():  # otherwise the tensor is empty, or its storage was emptied
                    shared: np.ndarray = x.numpy()
                    return shared
        self._require_dense(x, "NumPy")
        source = x.detach()
        if self.device_of(x) is not CPU:
            if not copy:
                raise messages.copy_needed(self.device_of(x), CPU)
            source, copy = pinned.copy_to(source, NATIVE[CPU]), False  # nothing else refers to the new tensor
        if source.is_conj() or source.is_neg():
            if not copy:
                raise messages.cannot_share("this tensor", "its conjugation or negation is pending")
            if source.dtype is torch.complex128 and not _is_aligned(source):
                source = _copy_aligned(source)
            source, copy = source.resolve_conj().resolve_neg(), False
        if source._is_zerotensor():  # an internal tensor of derivatives, without memory
            source = source.clone()
        name = self.dtype_name(source)
        if name not in SMALL_FLOATS and name not in NUMPY_DTYPES:
            raise messages.no_numpy_dtype(name)
        try:  # small floats are reinterpreted, never converted
            array: np.ndarray = (source.view(SMALL_FLOATS[name]) if name in SMALL_FLOATS else source).numpy()
        except RuntimeError as error:
            problem = f"this {type(x).__name__} has no values that NumPy can read"
            raise ConversionError(problem, "convert outside the function that is traced or transformed") from error
        array = array.view(numpy_dtype(name)) if name in SMALL_FLOATS else array
        return np.array(array) if copy else array

    def from_numpy(self, array: np.ndarray, device: Device, copy: bool) -> Tensor:
        kind = array.dtype
        if device is CPU and _COPYABLE.get(kind) is kind:
            flags = array.flags
            if flags.c_contiguous and flags.aligned and flags.writeable:  # otherwise PyTorch warns, or cannot read it
                shared = torch.from_numpy(array)
                return shared.clone() if copy else shared
        name = kind.name
        dtype = TORCH_DTYPES.get(name)
        if dtype is None:
            raise messages.no_dtype(self, name)
        if not copy:
            return self._share_array(array, name, device)
        if _is_shareable(array):  # a transposed array keeps its strides, and is copied as it is in memory
            shared = _view(array, name)
            return shared.clone() if device is CPU else pinned.copy_to(shared, native(device))
        result = torch.empty(array.shape, dtype=dtype, device="cpu")
        if name in SMALL_FLOATS:
            result.view(SMALL_FLOATS[name]).numpy()[...] = array.view(_integer_of_width(name))
        else:
            result.numpy()[...] = array
        return result if device is CPU else pinned.copy_to(result, native(device))

    def _share_array(self, array: np.ndarray, name: str, device: Device) -> Tensor:
        """Return a tensor over an array's own memory."""
        if device is not CPU:
            raise messages.copy_needed(CPU, device)
        if not _is_shareable(array):
            reason = "PyTorch has no negative or uneven strides" if array.flags.writeable else "it is read-only"
            raise messages.cannot_share("this array", reason)
        return _view(array, name)

    def detach(self, x: Tensor) -> Tensor:
        return x.detach()

    def dtype_name(self, x: Tensor) -> str:
        return _NAMES.get(x.dtype) or str(x.dtype).removeprefix("torch.")

    def shape(self, x: Tensor) -> tuple[int, ...]:
        try:
            return tuple(x.shape)
        except RuntimeError as error:  # a nested tensor of layout strided
            if not x.is_nested:
                raise
            msg = "PyTorch's nested tensors of layout strided have no shape"
            raise UnsupportedError(msg, _JAGGED) from error

    def is_writable(self, x: Tensor) -> bool:
        return True

    def nbytes(self, x: Tensor) -> int:
        if x.layout is torch.strided or x.layout is torch.jagged:
            return int(x.numel() * x.element_size())
        return sum(int(part.numel() * part.element_size()) for part in _dense_parts(x))

    def synchronize(self, device: Device) -> None:
        if device is CPU:
            return
        if TYPES.get(device.kind) == "mps":
            torch.mps.synchronize()
            return
        accelerator = device_module(device.kind)  # nothing to wait for if this process never used the device
        if accelerator.is_initialized() and (TYPES.get(device.kind) != "cuda" or has_context(device.index)):
            accelerator.synchronize(device.index)

    def _require_dense(self, x: Tensor, consumer: str) -> None:
        """Refuse a tensor that has no plain block of memory, and name the call that gives it one."""
        self.device_of(x)
        if torch.nn.parameter.is_lazy(x):
            problem, hint = "a parameter without a shape yet", "call its module once first, which gives it values"
        elif x.is_nested:
            problem, hint = "a nested tensor", _PAD
        elif x.layout is not torch.strided:
            problem, hint = f"a tensor of layout {str(x.layout).removeprefix('torch.')}", "call x.to_dense() first"
        elif _is_emptied(x):
            problem, hint = "a tensor whose storage was emptied", "give it memory and values again first"
        elif x.dtype in _QUANTIZED:
            problem, hint = f"a quantized tensor ({self.dtype_name(x)})", _QUANTIZED_HINT
        else:
            return
        msg = f"{problem} has no counterpart in {consumer}"
        raise ConversionError(msg, hint)


def _is_emptied(x: Tensor) -> bool:
    """Return True if a tensor's memory was freed, as FSDP does; NumPy would then see other memory, or crash."""
    if type(x) not in (torch.Tensor, torch.nn.Parameter) or not x.numel() or x._is_zerotensor():
        return False
    try:
        return not x.data_ptr()
    except RuntimeError:  # a tensor of a transformed function: the code that reads it reports the error
        return False


def _dense_parts(x: Tensor) -> list[Tensor]:
    """Return the dense tensors that make up a sparse one."""
    if x.layout is torch.sparse_coo:
        return [x._indices(), x._values()]
    if x.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [x.ccol_indices(), x.row_indices(), x.values()]
    if x.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [x.crow_indices(), x.col_indices(), x.values()]
    return [x]  # mkldnn: dense, in its own memory order


def _is_shareable(array: np.ndarray) -> bool:
    """Return True if ``torch.from_numpy`` takes an array unchanged: writable, aligned, no negative or uneven stride."""
    size = array.itemsize
    return (
        array.flags.writeable
        and array.__array_interface__["data"][0] % size == 0
        and all(step >= 0 and step % size == 0 for step in array.strides)
    )


def _view(array: np.ndarray, name: str) -> Tensor:
    """Return a tensor over the memory of an array that `_is_shareable` has accepted."""
    if name in SMALL_FLOATS:
        return torch.from_numpy(array.view(_integer_of_width(name))).view(TORCH_DTYPES[name])
    # NumPy has two equal dtypes for unsigned 64-bit integers, and PyTorch recognizes only one of them.
    return torch.from_numpy(array if array.dtype is NUMPY_DTYPES[name] else array.view(NUMPY_DTYPES[name]))


def _integer_of_width(name: str) -> Any:
    """Return the NumPy integer that is as wide as a small float."""
    return NUMPY_DTYPES["int16" if name == "bfloat16" else "int8"]
