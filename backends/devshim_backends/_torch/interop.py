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

from devshim import _dlpack
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
            return torch.from_dlpack(_Checked(source))
        except _Refused as refusal:
            raise ConversionError(f"{refusal}", "let it be copied") from None
        except Exception as error:  # producers and PyTorch raise BufferError, RuntimeError, ValueError, TypeError, ...
            raise ConversionError(
                f"PyTorch cannot share the memory of this {type(source).__name__}: {error}", "let it be copied"
            ) from error


class _Refused(BufferError):
    """A refusal of ours on its way out through PyTorch, which takes a TypeError for an old producer and asks again."""


class _OnItsCard:
    """A CUDA tensor that is exported with its own card current."""

    def __init__(self, x: Tensor) -> None:
        self._x = x

    def __dlpack_device__(self) -> Any:
        return self._x.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        with torch.cuda.device(self._x.device):
            return self._x.__dlpack__(**options)


class _Checked:
    """A producer whose capsules are looked into before PyTorch gets them."""

    def __init__(self, source: Any) -> None:
        self._source = source

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, index = self._source.__dlpack_device__()
        return (int(kind), 0 if index is None else int(index))

    def __dlpack__(self, **options: Any) -> Any:
        capsule = self._source.__dlpack__(**options)
        _check(capsule)
        return capsule


def _check(capsule: Any) -> None:
    """Refuse a capsule that PyTorch would abort on, or would write through against its owner's word."""
    offered = _dlpack.read(capsule, versioned=True)
    if offered.read_only:
        raise _Refused("PyTorch has no read-only tensors, and the memory offered is read-only")
    if offered.has_negative_strides:
        raise _Refused("PyTorch has no negative strides, and the memory offered has")
