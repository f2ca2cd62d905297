"""Implicit transfers from simulated GPUs: Python reads or prints the values of an array."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from devshim.contract.backend import Backend
from devshim.devices.device import Device
from devshim.monitoring.instrumentation import instrument_operands, instrument_reads, patched
from devshim.monitoring.use_checks import instrument_uses
from devshim_backends._numpy.simulation.simulate import SimulatedArray

_READ_METHODS = (*((name, f"{name}()") for name in ("tobytes", "tofile", "dump", "dumps")), ("__reduce_ex__", "pickle"))

_OPERATORS = ("__array_ufunc__", "__array_function__", "__getitem__", "__setitem__")
"""The methods that NumPy calls for its functions, operators and indexing."""
_METHODS = tuple(name for name in dir(np.ndarray) if name[0] != "_" and callable(getattr(np.ndarray, name)))
"""The methods of arrays. If ``__array_ufunc__`` raises inside ``x.sum()``, NumPy never releases ``x`` (2.4)."""


class NumpyTransferHooks(Backend):
    """The mixin for implicit transfers."""

    @contextmanager
    def report_implicit_transfers(self, report: Callable[[Device, Device, str], None]) -> Iterator[None]:
        # Indexing is the only operation to report: all others refuse operands on another device.
        indexing = instrument_operands(SimulatedArray, _device_of_array, report, names=("__getitem__", "__setitem__"))
        with instrument_reads(SimulatedArray, _device_of_array, report, _READ_METHODS), indexing:
            yield

    @contextmanager
    def refuse_removed_devices(self, check: Callable[[Device | None], None]) -> Iterator[None]:
        own = SimulatedArray.__array_finalize__

        def finalize(x: SimulatedArray, origin: object) -> None:
            check(getattr(origin, "_gpu", None))  # x is a view, or a copy that a method in C has made
            own(x, origin)

        more = ("__reduce_ex__", *_OPERATORS, *_METHODS)
        with (
            instrument_uses(SimulatedArray, _device_of_array, check, more),
            patched(SimulatedArray, {own.__name__: finalize}),
        ):
            yield


def _device_of_array(x: SimulatedArray) -> Device:
    return x._gpu
