"""Checks that refuse tensors and variables on simulated GPUs that were taken away: in reads, operators and functions.

While a removed GPU existed, `hooks` checked its operators, but `hooks` may be uninstalled by now. Every eager operator
and every call of a ``tf.function`` is run by one of three functions of `tensorflow.python.pywrap_tfe`, and copies use a
separate function. While any tensor is left on a GPU that was taken away, each of these first checks its inputs.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any
from weakref import getweakrefs

import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.framework import ops

from devshim.devices.device import CPU
from devshim.monitoring.instrumentation import patched
from devshim.monitoring.use_checks import instrument_uses
from devshim_backends._tensorflow.internals.locations import EAGER, TensorflowLocations
from devshim_backends._tensorflow.simulation.memory import LOCAL, VARIABLES
from devshim_backends._tensorflow.simulation.storage import SIMULATED, TensorRef

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from devshim.devices.device import Device

    Check = Callable[[Device | None], None]

_ENTRIES = ("TFE_Py_FastPathExecute", "TFE_Py_Execute", "TFE_Py_ExecuteCancelable")
"""The functions that run every eager operator. The first takes inputs from argument four on, the others a list."""

_HANDLE_OPERATORS = frozenset({"VarIsInitializedOp", "DestroyResourceOp"})
"""Operators on a variable's handle that do not access its value."""


class TensorflowRemovedGpus(TensorflowLocations):
    """The mixin for simulated GPUs that were taken away."""

    @contextmanager
    def refuse_removed_devices(self, check: Check) -> Iterator[None]:
        def use(x: Any) -> Device | None:
            return None if LOCAL.is_counting() else self._device_to_check(x)

        def copy(x: Any, *args: Any, **kwargs: Any) -> Any:
            check(use(x))
            return original(x, *args, **kwargs)

        original = ops._EagerTensorBase._copy_nograd
        entries = {name: self._wrap_entry(getattr(pywrap_tfe, name), check) for name in _ENTRIES}
        with ExitStack() as stack:
            stack.enter_context(instrument_uses(EAGER, use, check, ("_numpy",), buffers=True))
            stack.enter_context(patched(ops._EagerTensorBase, {"_copy_nograd": copy}))
            stack.enter_context(patched(pywrap_tfe, entries))
            yield

    def _wrap_entry(self, original: Any, check: Check) -> Any:
        """Return a wrapper that checks the devices of the inputs; a variable's handle has the device of its value."""

        def run(*args: Any) -> Any:
            if not LOCAL.is_counting() and _HANDLE_OPERATORS.isdisjoint(args[1:3]):
                for x in _tensors(args[3:]):
                    check(self._device_to_check(x))
            return original(*args)

        return run

    def _device_to_check(self, x: Any) -> Device | None:
        """Return the device of a tensor or variable, after a search for unused removed GPUs if the tensor is new.

        A tensor is new if it is not counted, because every tensor that was on the GPU when it was removed is.
        """
        if type(x) is not EAGER:
            return TensorflowLocations.device_of(self, x)
        name = x.device if x.dtype is tf.resource else x.backing_device  # a variable's handle has its device
        device = self.device_named(name)
        if device is None or device is CPU or SIMULATED[device.index].removed_at is None:
            return device
        if id(x) not in VARIABLES and not any(type(each) is TensorRef for each in getweakrefs(x)):
            SIMULATED.forget_unused()
        return self.device_named(name)


def _tensors(inputs: Sequence[Any]) -> Iterator[Any]:
    """Yield the eager tensors among an operator's inputs; attributes after them are ignored."""
    for x in inputs:
        if type(x) is EAGER:
            yield x
        elif isinstance(x, (list, tuple)):
            yield from _tensors(x)
