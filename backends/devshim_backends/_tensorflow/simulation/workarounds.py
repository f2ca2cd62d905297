"""A workaround for a race in TensorFlow: while GPUs are simulated, eager operators are not run as functions.

TensorFlow (2.16 to 2.21) wraps each eager operator in a function, and these functions share one rendezvous per process.
If two threads run an operator on one device at the same time, each can receive the other's int32 inputs and results
that TensorFlow moves between host memory and the device: shapes, axes, indices (tensorflow/tensorflow#123980). A
`tf.function` has its own rendezvous and is not affected.

An operator that is run directly expects a variable's handle on its device, but the handle is in host memory, so the
device policy refuses the operator. Reads and assignments, which have no other input that could be on a wrong device,
are run without the policy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import context

from devshim_backends._tensorflow.internals.locations import EAGER

if TYPE_CHECKING:
    from devshim_backends._tensorflow.internals.locations import TensorflowLocations

__all__ = ["ON_VARIABLES", "on_variable", "run_operators_directly", "set_eager_op_as_function"]

ON_VARIABLES = ("ReadVariableOp", "AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp")

_FAST, _OPTION = pywrap_tfe.TFE_Py_FastPathExecute, pywrap_tfe.TFE_ContextOptionsSetRunEagerOpAsFunction
_on = False


def run_operators_directly(backend: TensorflowLocations, on: bool) -> None:
    """Run operators directly from now on, or as functions again, which is TensorFlow's default."""
    global _on
    _on = on
    if backend.started():
        pywrap_tfe.TFE_ContextSetRunEagerOpAsFunction(context.context()._handle, not on)


def set_eager_op_as_function(options: Any, as_functions: bool) -> None:
    """Start TensorFlow with the chosen way to run operators; replaces ``TFE_ContextOptionsSetRunEagerOpAsFunction``."""
    _OPTION(options, as_functions and not _on)


def on_variable(args: tuple[Any, ...]) -> Any:
    """Run one of `ON_VARIABLES` by ``TFE_Py_FastPathExecute``, without the policy if the value is at the handle."""
    native, x = args[0]._handle, args[4]
    policy = pywrap_tfe.TFE_ContextGetDevicePlacementPolicy(native)
    beside = type(x) is str or (type(x) is EAGER and x.backing_device == args[3].device)  # a read has attributes only
    if not beside or policy != context.DEVICE_PLACEMENT_EXPLICIT:
        return _FAST(*args)
    try:  # it includes both calls, so that Ctrl-C cannot come between a call in C and the block that undoes it
        pywrap_tfe.TFE_ContextSetThreadLocalDevicePlacementPolicy(native, context.DEVICE_PLACEMENT_SILENT)
        return _FAST(*args)
    finally:
        pywrap_tfe.TFE_ContextSetThreadLocalDevicePlacementPolicy(native, policy)
