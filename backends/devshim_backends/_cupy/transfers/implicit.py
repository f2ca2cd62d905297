"""Implicit transfers of CuPy: Python reads values from a GPU, and CuPy copies indices to a GPU.

CuPy refuses ``numpy.asarray(x)`` and NumPy operands with a TypeError, so these need no report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import cupy

from devshim.contract.backend import Backend
from devshim.devices.device import Device
from devshim.monitoring.instrumentation import instrument_operands, instrument_reads, patched
from devshim_backends._cupy.devices import gpu_device

_READ_METHODS = (("get", "get()"), *((name, f"{name}()") for name in ("tobytes", "tofile", "dump", "dumps")))
_READ_METHODS += (("__reduce__", "pickle"),)


class CupyTransferHooks(Backend):
    """The mixin for implicit transfers."""

    @contextmanager
    def report_implicit_transfers(self, report: Callable[[Device | None, Device, str], None]) -> Iterator[None]:
        refusal = cupy.ndarray.__array__
        indexing = instrument_operands(cupy.ndarray, _device_of_array, report, names=("__getitem__", "__setitem__"))
        with (
            instrument_reads(cupy.ndarray, _device_of_array, report, _READ_METHODS),
            indexing,
            patched(cupy.ndarray, {"__array__": refusal}),
        ):
            yield


def _device_of_array(x: cupy.ndarray) -> Device:
    return gpu_device(x.data.device_id)
