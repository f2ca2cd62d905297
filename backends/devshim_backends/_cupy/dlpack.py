"""CuPy and DLPack, in the order of streams.

Requirements this module answers:

* A producer makes its consumer's stream wait for its own; CuPy asks for that, and does it, on the current GPU's
  streams, so the array's own GPU is current for the moment.
* Memory that must not be written is not taken: CuPy's arrays can be written, all of them (14.2).
* Host memory is NumPy's to share, and what NumPy does not share as it is goes by a copy: bfloat16, the other byte
  order, negative strides, on which `torch.from_dlpack` ends the process (pytorch/pytorch#188023), arrays that are
  read-only.
"""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from devshim.contract.backend import Tensor
from devshim.devices.device import CPU, Device
from devshim.errors import ConversionError, messages
from devshim.transfers import dlpack
from devshim_backends._cupy.devices import card
from devshim_backends._cupy.scopes import on_card
from devshim_backends._cupy.tensors import CupyTensors


class CupyInterop(CupyTensors):
    """The mixin for DLPack."""

    alignment = 1
    """On the host, where NumPy's arrays know whether they are aligned; on a GPU see `_check_on_card`."""

    def to_dlpack(self, x: Tensor) -> Any:
        here = self.device_of(x)
        if here is not CPU:
            return _OnItsCard(x, here)
        if isinstance(x, np.ma.MaskedArray):
            raise messages.masked()
        if any(stride < 0 for stride in x.strides):
            raise ConversionError("an array with negative strides cannot be shared", "copy it first")
        if not x.dtype.isnative or x.dtype.kind not in "biufc":
            raise ConversionError(f"NumPy's own DLPack has no form for dtype {x.dtype}", "convert the values first")
        if not x.flags.writeable:
            raise ConversionError("an array that is read-only cannot be shared", "copy it first")
        return x

    def from_dlpack(self, source: Any) -> Tensor:
        try:
            kind, index = source.__dlpack_device__()
            if int(kind) in dlpack.HOST:
                return _writable(np.from_dlpack(dlpack.Checked(source, _check)))
            with on_card(card(int(index or 0))):
                return cupy.from_dlpack(dlpack.Checked(source, _check_on_card))
        except Exception as error:  # producers, CuPy and NumPy raise BufferError, RuntimeError, TypeError, ...
            raise messages.not_taken(self, source, error) from error


class _OnItsCard:
    """An array that is exported with its own GPU current."""

    def __init__(self, x: Tensor, device: Device) -> None:
        self._x = x
        self._device = device

    def __dlpack_device__(self) -> Any:
        return self._x.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        with on_card(self._device):
            return self._x.__dlpack__(**options)


def _check(offered: dlpack.Offer) -> None:
    """Refuse what could be written through against its owner's word, and what no array can be made of."""
    if offered.read_only:
        raise BufferError("it is read-only, and CuPy has no read-only arrays")
    if offered.dtype not in dlpack.FORMS:
        raise BufferError(f"it is of dtype {offered.dtype}")


def _check_on_card(offered: dlpack.Offer) -> None:
    """Refuse as `_check`, and memory on whose address a kernel would fail, with all that this process has there."""
    _check(offered)
    if offered.address % offered.itemsize:
        raise BufferError(f"its address is not a multiple of {offered.itemsize}, the bytes of an element")


def _writable(array: np.ndarray) -> np.ndarray:
    """Return an array that can be written, or refuse one that NumPy has made read-only: its capsule cannot tell."""
    if not array.flags.writeable:
        raise BufferError("it does not say whether it may be written")
    return array
