"""Copies between host memory and GPUs, and from GPU to GPU, in the order of CuPy's streams.

Requirements this module answers:

* Each copy is asked for with its GPU current, on the stream that this thread has chosen there; afterwards the GPU that
  was current is so again.
* A copy from host memory is made before the call returns, unless ``non_blocking`` is asked for: CuPy itself returns
  while it still reads (``cupy.array(..., blocking=False)``, its default, 14.2).
* A copy to host memory is complete on return.
* From GPU to GPU two streams work: that of the target waits for what the source's was asked before, and the source's
  waits for the copy before its memory serves again.  CuPy's own ``copy()`` waits for neither (14.2).
"""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from devshim.devices.device import Device
from devshim.errors import ConversionError, messages
from devshim_backends._cupy.scopes import on_card


def to_card(array: np.ndarray, device: Device, non_blocking: bool = False) -> Any:
    """Return a GPU's copy of an array of the host's."""
    if isinstance(array, np.ma.MaskedArray):
        raise messages.masked()
    if array.dtype.hasobject or array.dtype.fields is not None or array.dtype.kind in "SUMm":
        raise ConversionError(
            f"an array of dtype {array.dtype} cannot be on {device}: GPUs hold plain numbers",
            "convert the values first, or keep it on the CPU",
        )
    with on_card(device):
        return cupy.array(array, order="C", blocking=not non_blocking)


def to_host(x: Any, device: Device) -> np.ndarray:
    """Return a copy of a GPU's array in host memory."""
    with on_card(device):
        found: np.ndarray = x.get()
    return found


def across(x: Any, source: Device, target: Device) -> Any:
    """Return a copy of a GPU's array on the same GPU or on another."""
    if source is target:
        with on_card(source):
            return x.copy()
    with on_card(source):
        whole = x.astype(x.dtype, order="C", copy=False)  # CuPy copies no gaps from GPU to GPU
        asked = _now()
    with on_card(target):
        cupy.cuda.get_current_stream().wait_event(asked)
        made = whole.copy()
        done = _now()
    with on_card(source):
        cupy.cuda.get_current_stream().wait_event(done)
    return made


def _now() -> Any:
    """Return an event that comes when the current stream has done what it was asked until now."""
    event = cupy.cuda.Event(disable_timing=True)
    event.record()
    return event
