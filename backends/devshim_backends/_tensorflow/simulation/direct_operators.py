"""TensorFlow's operators run directly while GPUs are simulated, and not each as a function of its own.

TensorFlow (2.16 to 2.21) wraps each eager operator in a function, and all of these share one rendezvous per process.
Two threads that run an operator on one device at the same time take each other's int32 inputs and results between host
memory and the device: shapes, axes, indices (tensorflow/tensorflow#123980).  A `tf.function` has its own rendezvous.

Run directly, an operator expects a variable's handle, which is in host memory, on its device, and TensorFlow's device
policy refuses it: reads and assignments, where nothing else can be elsewhere, are made without the policy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import context

from devshim_backends._tensorflow.locations import EAGER

if TYPE_CHECKING:
    from devshim_backends._tensorflow.locations import TensorflowPlaces

__all__ = ["ON_VARIABLES", "on_variable", "option", "switch"]

ON_VARIABLES = ("ReadVariableOp", "AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp")

_FAST, _OPTION = pywrap_tfe.TFE_Py_FastPathExecute, pywrap_tfe.TFE_ContextOptionsSetRunEagerOpAsFunction
_on = False


def switch(backend: TensorflowPlaces, on: bool) -> None:
    """Run operators directly from now on, or as functions again, which they are unless devshim says so."""
    global _on
    _on = on
    if backend.started():
        pywrap_tfe.TFE_ContextSetRunEagerOpAsFunction(context.context()._handle, not on)


def option(options: Any, as_functions: bool) -> None:
    """Start TensorFlow; replaces ``TFE_ContextOptionsSetRunEagerOpAsFunction``."""
    _OPTION(options, as_functions and not _on)


def on_variable(args: tuple[Any, ...]) -> Any:
    """Run ``TFE_Py_FastPathExecute`` of one of `ON_VARIABLES`, without the policy where the value is at the handle."""
    native, x = args[0]._handle, args[4]
    policy = pywrap_tfe.TFE_ContextGetDevicePlacementPolicy(native)
    beside = type(x) is str or (type(x) is EAGER and x.backing_device == args[3].device)  # a read has attributes only
    if not beside or policy != context.DEVICE_PLACEMENT_EXPLICIT:
        return _FAST(*args)
    try:  # around both: no Ctrl-C comes between a call in C and the block that undoes it
        pywrap_tfe.TFE_ContextSetThreadLocalDevicePlacementPolicy(native, context.DEVICE_PLACEMENT_SILENT)
        return _FAST(*args)
    finally:
        pywrap_tfe.TFE_ContextSetThreadLocalDevicePlacementPolicy(native, policy)
