"""Implicit transfers of TensorFlow: reads of a GPU's values by Python or NumPy.

A read of a variable reads its value, an eager tensor. If TensorFlow and Keras cannot read a value for display
(``print(variable)``), they show nothing and suppress the error. Therefore the read is reported before they try.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.ops import resource_variable_ops

from devshim.devices.device import CPU
from devshim.monitoring.instrumentation import instrument_operands, instrument_reads, is_suppressed, patched, suppressed
from devshim_backends._tensorflow.internals.locations import EAGER, ON_HOST, PLACED, TensorflowLocations
from devshim_backends._tensorflow.simulation.memory import LOCAL
from devshim_backends._tensorflow.transfers.operators import report_operators

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from types import FrameType

    from devshim.devices.device import Device

    Report = Callable[[Device, Device, str], None]

_MORE = (("_numpy", "NumPy"),)
"""The method that all reads call, including pickling and TensorFlow's own reads."""


_COMPILER = "tensorflow.python.eager.polymorphic_function."
"""The package in which TensorFlow compiles functions."""


class TensorflowTransferHooks(TensorflowLocations):
    """The mixin for implicit transfers: by methods of eager tensors and variables, and by operators."""

    @contextmanager
    def report_implicit_transfers(self, report: Report) -> Iterator[None]:
        with ExitStack() as watched:
            watched.enter_context(instrument_reads(EAGER, self._device_read, report, _MORE, buffers=True))
            watched.enter_context(instrument_operands(EAGER, self._device_read, report))
            for cls in _variables():
                watched.enter_context(
                    instrument_operands(_find_defining_class("__add__", cls), self._device_read, report, indices=False)
                )
                watched.enter_context(self._report_display(_find_defining_class("__repr__", cls), report))
            if self.count("gpu") and (not self.simulated or self.native_names):  # otherwise operators never mix devices
                watched.enter_context(report_operators(self, report))
            yield

    def _report_display(self, cls: type, report: Report) -> AbstractContextManager[None]:
        original: Any = cls.__repr__

        def shown(x: Any) -> str:
            source = None if is_suppressed() else self._device_read(x)
            if source is not None:
                report(source, CPU, "print()")
            with suppressed():
                text: str = original(x)
            return text

        return patched(cls, {"__repr__": shown})

    def _device_read(self, x: Any) -> Device | None:
        if LOCAL.is_counting():  # the simulation is counting memory
            return None
        if _is_compiling(sys._getframe(2)) or not (isinstance(x, EAGER) or tf.executing_eagerly()):
            return None
        if self.simulated and isinstance(x, EAGER) and x.dtype in ON_HOST and not hasattr(x, PLACED):
            return None  # it is an operator's result, which would be on the host if the GPUs were real
        return self.device_of(x)


def _is_compiling(frame: FrameType) -> bool:
    """Return True if TensorFlow reads once, to compile a function: small values, and what is initialized already.

    With real GPUs, the latter is on the host. An error in the middle of compiling would leave an optimizer that the
    function was building without its variables.
    """
    module = frame.f_globals.get("__name__") or ""
    return module.startswith("tensorflow.") and (module.startswith(_COMPILER) or not tf.executing_eagerly())


def _variables() -> list[type]:
    """Return the classes of variables: TensorFlow's, and that of Keras if it is loaded."""
    keras = sys.modules.get("keras")
    original = [keras.Variable] if keras is not None and keras.config.backend() == "tensorflow" else []
    return [resource_variable_ops.BaseResourceVariable, *original]


def _find_defining_class(name: str, cls: type) -> type:
    """Return the class that defines a method of a class."""
    return next(base for base in cls.__mro__ if name in vars(base))
