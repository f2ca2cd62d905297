"""Memory shared with other frameworks through DLPack.

Requirements of this module:

* The process never aborts. ``torch.from_dlpack`` of an array with negative strides ends the process
  (pytorch/pytorch#188023, 2.13), so devshim reads the strides from the capsule before PyTorch sees it.
* No writable tensor over memory that its owner declared read-only: PyTorch ignores that flag.
* Paddle returns ``(1, None)`` for the host in ``__dlpack_device__``; PyTorch expects a number.
* A tensor on a card that is not the current one can be exported, although PyTorch refuses that ("Can't export tensors
  on a different CUDA device index"): the card is made current during the export.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils.dlpack import from_dlpack, to_dlpack

from devshim.contract.fast_paths import FastPaths
from devshim.devices.device import CPU
from devshim.errors import ConversionError, messages
from devshim.transfers import dlpack
from devshim_backends._torch.creation import HOST_MAKERS, NUMPY_DTYPES, TORCH_DTYPES
from devshim_backends._torch.random import HOST_MAKERS as HOST_DRAWS
from devshim_backends._torch.tensors import TorchTensors, copy_on_host

if TYPE_CHECKING:
    import numpy as np

    from devshim.contract.backend import Tensor

_PLAIN_DTYPES = {
    TORCH_DTYPES[name]: (name, kind) for name, kind in NUMPY_DTYPES.items() if not name.startswith("complex")
}
"""The dtypes of plain tensors -> name and NumPy dtype. Complex ones are left out: a conjugation may be pending."""
_PLAIN_TYPES = (torch.Tensor, torch.nn.Parameter)


def _fast_view(x: Tensor) -> np.ndarray | None:
    """Return a NumPy view of a plain tensor (see `FastPaths.numpy_view`); a sparse, nested or wrapped tensor raises."""
    kinds = _PLAIN_DTYPES.get(x.dtype)
    if kinds is None or not x.is_cpu or x.is_neg() or not x.data_ptr():
        return None
    array: np.ndarray = x.detach().numpy() if x.requires_grad else x.numpy()
    return array if array.dtype is kinds[1] and array.shape == x.shape else None


def _fast_copy(x: Tensor) -> np.ndarray | None:
    """Return a plain tensor's values in new memory (see `FastPaths.numpy_copy`).

    PyTorch refuses a pending negation or conjugation, and dtypes that NumPy lacks.
    """
    if x.is_cpu is not True or not x.data_ptr():
        return None
    array: np.ndarray = x.detach().numpy() if x.requires_grad else x.numpy()
    return array.copy("K")


def _fast_export(x: Tensor, alignment: int) -> tuple[Any, str, tuple[int, ...]] | None:
    """Return a plain tensor's capsule (see `FastPaths.dlpack_export`)."""
    kinds = _PLAIN_DTYPES.get(x.dtype)
    if kinds is None or not x.is_cpu or x.is_neg() or not x.is_contiguous():
        return None
    address = x.data_ptr()
    if not address or address % (alignment or kinds[1].itemsize):
        return None
    return to_dlpack(x.detach() if x.requires_grad else x), kinds[0], x.shape


def _fast_import(capsule: Any, dtype: str, shape: tuple[int, ...]) -> Tensor | None:
    """Return a tensor over a plain capsule (see `FastPaths.dlpack_import`)."""
    x = from_dlpack(capsule)
    is_exact = type(x) is torch.Tensor and x.is_cpu and x.dtype is TORCH_DTYPES.get(dtype) and x.shape == shape
    return x if is_exact else None


class TorchDlpack(TorchTensors):
    """Mixin for DLPack."""

    fast_paths = FastPaths(
        host_flag="is_cpu",
        host_type=torch.Tensor,
        host_makers={**HOST_MAKERS, **HOST_DRAWS},
        reading=torch.compiler.is_dynamo_compiling,
        host_copy=dict.fromkeys(_PLAIN_TYPES, copy_on_host),
        numpy_view=dict.fromkeys(_PLAIN_TYPES, _fast_view),
        numpy_copy=dict.fromkeys(_PLAIN_TYPES, _fast_copy),
        dlpack_export=dict.fromkeys(_PLAIN_TYPES, _fast_export),
        dlpack_import=_fast_import,
    )
    alignment = 0
    """Alignment to the size of an element is enough for every operator.

    Measured on 2.13 (x86-64, AVX-512): 40 operators, all dtypes, 1 to 4,096 elements, at offsets of 0 to 64 bytes. For
    complex128, fifteen operators (``x + x``, ``clone``, ``fill_``, ...) crash (SIGSEGV) if the address is not
    a multiple of 16, from 1 element on. The others work at every address, although no C++ compiler promises it.
    """

    def to_dlpack(self, x: Tensor) -> Any:
        self._require_dense(x, "DLPack")
        if x.is_conj() or x.is_neg():
            msg = "DLPack cannot express that a tensor's conjugation or negation is pending"
            raise ConversionError(msg, "call x.resolve_conj().resolve_neg() first")
        device = self.device_of(x)
        plain = x.detach()  # the result has no gradient; a Parameter becomes a plain tensor
        own = device is not CPU and device.kind == "gpu" and (plain.is_cuda or self.simulated)
        return _ExportOnOwnGpu(plain) if own else plain

    def from_dlpack(self, source: Any) -> Tensor:
        try:
            return torch.from_dlpack(dlpack.ValidatingExporter(source, _refuse_unsafe))
        except Exception as error:  # producers and PyTorch raise BufferError, RuntimeError, ValueError, TypeError, ...
            raise messages.not_accepted(self, source, error) from error


class _ExportOnOwnGpu:
    """A CUDA tensor whose export makes its own card current."""

    def __init__(self, x: Tensor) -> None:
        self._x = x

    def __dlpack_device__(self) -> Any:
        return self._x.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        with torch.cuda.device(self._x.device):
            return self._x.__dlpack__(**options)


def _refuse_unsafe(info: dlpack.TensorInfo) -> None:
    """Refuse a tensor on which PyTorch would abort, or that it would write to although the owner forbids it."""
    if info.read_only:
        msg = "it is read-only, and PyTorch has no read-only tensors"
        raise BufferError(msg)
    if info.has_negative_strides:
        msg = "it has negative strides, which PyTorch does not support"
        raise BufferError(msg)
