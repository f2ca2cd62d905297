"""Sharing memory with other frameworks through DLPack.

Requirements this module answers:

* Never an abort: ``torch.from_dlpack`` of an array with negative strides ends the process (pytorch/pytorch#188023,
  2.13), so the strides are read out of the capsule before PyTorch sees it.
* Never a writable tensor over memory whose owner said that it is read-only: PyTorch ignores that mark.
* Paddle names the host ``(1, None)`` in ``__dlpack_device__``; PyTorch wants a number.
* A tensor on a card that is not the current one can be exported, which PyTorch itself refuses ("Can't export
  tensors on a different CUDA device index"): the card is made current for the moment of the export.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from devshim import _dlpack, _refusals
from devshim.device import CPU
from devshim.errors import ConversionError
from devshim_backends._torch.tensors import TorchTensors

if TYPE_CHECKING:
    from devshim.backend import Tensor


class TorchInterop(TorchTensors):
    """The room of interop."""

    def to_dlpack(self, x: Tensor) -> Any:
        self._require_dense(x, "DLPack")
        if x.is_conj() or x.is_neg():
            raise ConversionError(
                "DLPack cannot say that a tensor's conjugation or negation is still to be done",
                "call x.resolve_conj().resolve_neg() first",
            )
        device = self.device_of(x)
        plain = x.detach()  # gradients stay here; a Parameter becomes a plain tensor
        return plain if device is CPU or device.kind != "gpu" else _OnItsCard(plain)

    def from_dlpack(self, source: Any) -> Tensor:
        try:
            return torch.from_dlpack(_dlpack.Checked(source, _check))
        except Exception as error:  # producers and PyTorch raise BufferError, RuntimeError, ValueError, TypeError, ...
            raise _refusals.not_taken(self, source, error) from error


class _OnItsCard:
    """A CUDA tensor that is exported with its own card current."""

    def __init__(self, x: Tensor) -> None:
        self._x = x

    def __dlpack_device__(self) -> Any:
        return self._x.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        with torch.cuda.device(self._x.device):
            return self._x.__dlpack__(**options)


def _check(offered: _dlpack.Offer) -> None:
    """Refuse what PyTorch would abort on, or would write through against its owner's word."""
    if offered.read_only:
        raise BufferError("it is read-only, and PyTorch has no read-only tensors")
    if offered.has_negative_strides:
        raise BufferError("it has negative strides, and PyTorch knows none")
