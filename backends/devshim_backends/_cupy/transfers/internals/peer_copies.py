"""Copies between host memory and GPUs, and from GPU to GPU, in the order of CUDA streams.

Requirements of this module:

* The GPU of a copy is current while devshim asks for the copy, and the copy uses the stream that this thread has
  chosen there. Afterwards the previous GPU is current again.
* A copy from host memory is complete when the call returns, unless ``non_blocking`` is asked for. CuPy returns while
  it still reads (``cupy.array(..., blocking=False)``, its default, 14.2).
* A copy to host memory is complete when the call returns.
* A copy from GPU to GPU uses two streams. The target's stream waits for earlier work on the source's stream, and the
  source's stream waits for the copy before its memory is reused. CuPy's own ``copy()`` waits for neither (14.2).
"""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from devshim.devices.device import Device
from devshim.errors import ConversionError, messages
from devshim_backends._cupy.scopes import current_device


def to_gpu(array: np.ndarray, device: Device, non_blocking: bool = False) -> Any:
    """Copy an array from host memory to a GPU."""
    if isinstance(array, np.ma.MaskedArray):
        raise messages.masked()
    if array.dtype.hasobject or array.dtype.fields is not None or array.dtype.kind in "SUMm":
        msg = f"an array of dtype {array.dtype} cannot be on {device}: a GPU stores only plain numbers"
        raise ConversionError(msg, "convert the values first, or keep it on the CPU")
    with current_device(device):
        return cupy.array(array, order="C", blocking=not non_blocking)


def to_host(x: Any, device: Device) -> np.ndarray:
    """Copy an array from a GPU to host memory."""
    with current_device(device):
        return x.get()  # type: ignore[no-any-return]  # CuPy is Any


def copy_to_gpu(x: Any, source: Device, target: Device) -> Any:
    """Copy an array from a GPU to the same GPU or to another."""
    if source is target:
        with current_device(source):
            return x.copy()
    with current_device(source):
        contiguous = x.astype(x.dtype, order="C", copy=False)  # from GPU to GPU, CuPy copies only contiguous arrays
        source_ready = _record_event()
    with current_device(target):
        cupy.cuda.get_current_stream().wait_event(source_ready)
        copied = contiguous.copy()
        copy_done = _record_event()
    with current_device(source):
        cupy.cuda.get_current_stream().wait_event(copy_done)
    return copied


def _record_event() -> Any:
    """Return an event that occurs when the current stream has finished the work requested until now."""
    event = cupy.cuda.Event(disable_timing=True)
    event.record()
    return event
