"""Eager operators with native names: the GPU on which they run without a scope, and the log of their devices.

* A machine with GPUs runs on ``GPU:0`` what has no scope, wherever its tensors are, and copies them there. So do
  simulated GPUs. TensorFlow reads the scope in C++, so the name is set there for the time of one operator. An operator
  on a variable runs where the variable is; TensorFlow does this in C++, too.
* An operator on strings or for datasets, which has no kernel for GPUs, runs on the host (`host_operators`).
* A call of a ``tf.function`` with variables on a GPU runs on their device; TensorFlow places each operator of it.
* `policies` decides which tensors may be copied.

``tf.debugging.set_log_device_placement`` would log the names of logical CPUs, so `operator_log` writes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensorflow.python.eager import context

from devshim.simulation.patching import Patches
from devshim_backends._tensorflow.internals.locations import EAGER, RAW_DEVICE, keep_alive
from devshim_backends._tensorflow.simulation import device_rules, hooks, workarounds
from devshim_backends._tensorflow.simulation.memory import VARIABLES
from devshim_backends._tensorflow.simulation.native_names.internals.clusters import CLUSTER
from devshim_backends._tensorflow.simulation.native_names.internals.host_operators import leaves_scope, runs_on_host
from devshim_backends._tensorflow.simulation.native_names.internals.operator_log import OperatorLog
from devshim_backends._tensorflow.simulation.native_names.internals.python_functions import called_on, is_traced
from devshim_backends._tensorflow.simulation.native_names.names import logical_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from devshim_backends._tensorflow.simulation.simulate import TensorflowSimulation

__all__ = ["install", "uninstall"]

_FUNCTIONS = ("__inference_", "__forward_", "__backward_", "PartitionedCall", "StatefulPartitionedCall")
_FUNCTION_BYTES = tuple(name.encode() for name in _FUNCTIONS)

_backend: TensorflowSimulation
_log: OperatorLog | None = None
_of_log = Patches()


def install(patches: Patches, backend: TensorflowSimulation) -> None:
    """Run operators without a scope on the first GPU."""
    global _backend, _log
    _backend, _log = backend, None
    patches.replace(hooks, "_FAST", _wrap_fast(hooks._FAST))
    patches.replace(hooks, "_EXECUTE", _wrap_slow(hooks._EXECUTE))
    patches.replace(hooks, "_CANCELABLE", _wrap_slow(hooks._CANCELABLE))
    patches.replace(hooks, "_CONSTANT", _wrap_constant(hooks._CONSTANT))
    patches.replace(hooks, "_GRADIENT", _wrap_gradient(hooks._GRADIENT))
    patches.replace(context.Context, "log_device_placement", property(lambda owner: _log is not None, _set_log))


def _set_log(owner: Any, enable: bool) -> None:
    global _log
    _of_log.undo()
    _log = OperatorLog() if enable else None
    if enable:  # these do not call `hooks._FAST`
        for name in workarounds.ON_VARIABLES:
            _of_log.replace_item(hooks._SPECIAL, name, _wrap_on_variable(hooks._SPECIAL[name]))


def _wrap_on_variable(original: Callable[..., Any]) -> Callable[..., Any]:
    def run(args: tuple[Any, ...]) -> Any:
        result, log = original(args), _log
        if log is not None:
            log.write(args[1], args[3:], result, "")
        return result

    return run


def uninstall() -> None:
    """Stop the log."""
    _of_log.undo()


# ---------------------------------------------------------------------------------------------------- without a scope
def _default_device(op: Any, inputs: Sequence[Any]) -> str:
    """Return the raw name of the device on which an operator runs without a scope; "" leaves it to TensorFlow."""
    if _is_function(op):
        variable = _first_variable(inputs)
        if variable is not None:
            return keep_alive(RAW_DEVICE(variable))
    if (b"Dataset" if isinstance(op, bytes) else "Dataset") in op or runs_on_host(op, inputs):
        return ""  # most for datasets have no kernel for GPUs
    return CLUSTER.first if _backend.count("gpu") else ""


def _is_function(op: Any) -> bool:
    """Return True if an operator calls a ``tf.function``."""
    return op.startswith(_FUNCTIONS if isinstance(op, str) else _FUNCTION_BYTES)  # type: ignore[no-any-return]


def _first_variable(inputs: Sequence[Any]) -> Any:
    """Return the handle of an operator's first variable on a GPU, or None."""
    return next((x for x in device_rules._tensors(inputs) if id(x) in VARIABLES), None)


def _wrap_fast(original: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        local = args[0]._thread_local_data
        scope = local.device_name
        default = "" if scope else _default_device(args[1], args[3:])
        if scope and leaves_scope(_backend, args[1], args[3:], scope):
            try:
                local.device_name = ""
                result = original(*args)
            finally:
                local.device_name = scope
        elif not default:
            result = original(*args)
        else:
            try:
                local.device_name = default
                result = original(*args)
            finally:
                local.device_name = ""
            if args[1] == "Fill":  # tf.zeros and others: no line chose the device
                result._devshim_anywhere = True
        log = _log
        if log is not None:
            log.write(args[1], args[3:], result, scope or default)
        return result

    return run


def _wrap_slow(original: Callable[..., Any]) -> Callable[..., Any]:
    def run(handle: Any, device: str, op: Any, inputs: Any, *args: Any) -> Any:
        device = logical_name(device) if device else _default_device(op, inputs)
        if leaves_scope(_backend, op, inputs, device):
            device = ""
        if is_traced() and _is_function(op):
            with called_on(device):
                result = original(handle, device, op, inputs, *args)
        else:
            result = original(handle, device, op, inputs, *args)
        log = _log
        if log is not None:
            log.write(op, inputs, result, device)
        return result

    return run


def _wrap_constant(original: Callable[..., Any]) -> Callable[..., Any]:
    def create(value: Any, ctx: Any, dtype: Any = None) -> Any:
        if ctx.device_name or isinstance(value, EAGER) or device_rules.is_operand(3) or not _backend.count("gpu"):
            result = original(value, ctx, dtype)
        else:
            local = ctx._thread_local_data
            try:
                ctx.ensure_initialized()
                local.device_name = CLUSTER.first
                result = original(value, ctx, dtype)
            finally:
                local.device_name = ""
            result._devshim_anywhere = True
        log = _log
        if log is not None:
            log.write_constant(value, result, ctx.device_name or _default_device("_EagerConst", ()))
        return result

    return create


def _wrap_gradient(original: Callable[..., Any]) -> Callable[..., Any]:
    """Begin a gradient with ones on the device of each target, including the host; TensorFlow gives them no scope."""

    def gradient(tape: Any, target: Any, sources: Any, output_gradients: Any = None, *args: Any, **kwargs: Any) -> Any:
        if output_gradients is None and all(type(x) is EAGER for x in target):
            output_gradients = [hooks._create_ones(x) for x in target]
        return original(tape, target, sources, output_gradients, *args, **kwargs)

    return gradient
