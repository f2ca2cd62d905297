"""What of a card's values TensorFlow reads into Python or NumPy without saying that it copies.

A variable's reads are those of its value, an eager tensor.  But where TensorFlow and Keras cannot read the value that
they show (``print(variable)``), they show none, whatever the reason: so that is told before they try.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.ops import resource_variable_ops

from devshim.devices.device import CPU
from devshim.monitoring.instrumentation import meetings_told, quiet, reads_told, replaced, said
from devshim_backends._tensorflow.locations import EAGER, ON_HOST, PLACED, TensorflowPlaces
from devshim_backends._tensorflow.simulation.memory import LOCAL
from devshim_backends._tensorflow.transfers.operators import operators_told

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from types import FrameType

    from devshim.devices.device import Device

    Report = Callable[[Device, Device, str], None]

_MORE = (("_numpy", "NumPy"),)
"""What all reads go by: pickling, and TensorFlow's own, too."""


_COMPILER = "tensorflow.python.eager.polymorphic_function."
"""Where TensorFlow compiles functions."""


class TensorflowHidden(TensorflowPlaces):
    """The room of hidden transfers: those of eager tensors' and variables' methods, and of operators."""

    @contextmanager
    def watch(self, report: Report) -> Iterator[None]:
        with ExitStack() as watched:
            watched.enter_context(reads_told(EAGER, self._where, report, _MORE, buffers=True))
            watched.enter_context(meetings_told(EAGER, self._where, report))
            for cls in _variables():
                watched.enter_context(meetings_told(_defining("__add__", cls), self._where, report, indices=False))
                watched.enter_context(self._showing(_defining("__repr__", cls), report))
            if self.count("gpu") and not self.simulated:
                watched.enter_context(operators_told(self, report))
            yield

    def _showing(self, cls: type, report: Report) -> AbstractContextManager[None]:
        theirs: Any = cls.__repr__

        def shown(x: Any) -> str:
            source = None if quiet() else self._where(x)
            if source is not None:
                report(source, CPU, "print()")
            with said():
                text: str = theirs(x)
            return text

        return replaced(cls, {"__repr__": shown})

    def _where(self, x: Any) -> Device | None:
        if LOCAL.is_counting():  # who counts a card's memory looks where it is
            return None
        if _is_compiling(sys._getframe(2)) or not (isinstance(x, EAGER) or tf.executing_eagerly()):
            return None
        if self.simulated and isinstance(x, EAGER) and x.dtype in ON_HOST and not hasattr(x, PLACED):
            return None  # an operator's result, which is on the host where cards are real
        return self.device_of(x)


def _is_compiling(frame: FrameType) -> bool:
    """Whether a read is TensorFlow's own, once, to compile a function: small values, and what is initialized yet.

    The latter it has on the host, where cards are real; and a function that is left in the middle leaves an optimizer
    that it was building without its variables.
    """
    module = frame.f_globals.get("__name__") or ""
    return module.startswith("tensorflow.") and (module.startswith(_COMPILER) or not tf.executing_eagerly())


def _variables() -> list[type]:
    """The classes of variables: TensorFlow's, and Keras' where it is loaded."""
    keras = sys.modules.get("keras")
    theirs = [keras.Variable] if keras is not None and keras.config.backend() == "tensorflow" else []
    return [resource_variable_ops.BaseResourceVariable, *theirs]


def _defining(name: str, cls: type) -> type:
    """The class that a class has a method of."""
    return next(base for base in cls.__mro__ if name in vars(base))
