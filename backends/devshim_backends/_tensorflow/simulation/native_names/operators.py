"""Eager operators with native names: the GPU on which they run without a scope, and the log of their devices.

* A machine with GPUs creates on ``GPU:0`` what is created without a scope: constants, variables, random numbers. So do
  simulated GPUs. TensorFlow reads the scope in C++, so the name is set there for the time of one operator.
* An operator with tensors runs where its first tensor is. TensorFlow would run it on ``GPU:0`` and copy the tensors
  there, one by one. If they are on different GPUs, the operator is refused, as always on simulated GPUs.
* A constant that was created without a scope is copied to the device of the other tensors: TensorFlow creates many.
* A call of a ``tf.function`` with variables runs on their device; TensorFlow would copy the arguments, too.
* In a scope of TensorFlow's name, TensorFlow's rule applies: tensors are copied to the scope's device.

``tf.debugging.set_log_device_placement`` would log the names of logical CPUs, so the log is written here.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.eager import context

from devshim.devices.device import CPU
from devshim_backends._tensorflow.failures import MixedDevicesError
from devshim_backends._tensorflow.locations import EAGER, RAW_BACKING_DEVICE, RAW_DEVICE
from devshim_backends._tensorflow.simulation import device_rules, direct_operators, hooks
from devshim_backends._tensorflow.simulation.memory import VARIABLES
from devshim_backends._tensorflow.simulation.native_names.names import logical_name
from devshim_backends._tensorflow.simulation.native_names.scopes import SCOPE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from devshim.devices.device import Device
    from devshim.simulation.patching import Patches
    from devshim_backends._tensorflow.locations import TensorflowLocations
    from devshim_backends._tensorflow.simulation.simulate import TensorflowSimulation

__all__ = ["install"]

_FIRST = "/job:localhost/replica:0/task:0/device:CPU:1"
"""TensorFlow's name of the logical CPU that is ``GPU:0``."""
_FUNCTIONS = ("__inference_", "__forward_", "__backward_", "PartitionedCall", "StatefulPartitionedCall")
_FUNCTION_BYTES = tuple(name.encode() for name in _FUNCTIONS)

_backend: TensorflowSimulation
_logged = False


def install(patches: Patches, backend: TensorflowSimulation) -> None:
    """Choose the device of an operator: in a scope by its rule; otherwise that of its tensors, or the first GPU."""
    global _backend, _logged
    _backend, _logged = backend, False
    patches.replace(hooks, "_FAST", _wrap_fast(hooks._FAST))
    patches.replace(hooks, "_EXECUTE", _wrap_slow(hooks._EXECUTE))
    patches.replace(hooks, "_CANCELABLE", _wrap_slow(hooks._CANCELABLE))
    patches.replace(hooks, "_CONSTANT", _wrap_constant(hooks._CONSTANT))
    patches.replace(hooks, "_GRADIENT", _wrap_gradient(hooks._GRADIENT))
    patches.replace(device_rules, "_common_device", _wrap_common_device(device_rules._common_device))
    patches.replace(device_rules, "_is_hosted", _wrap_is_hosted(device_rules._is_hosted))
    patches.replace(context.Context, "log_device_placement", property(lambda owner: _logged, _log))


def _log(owner: Any, enable: bool) -> None:
    global _logged
    _logged = bool(enable)


def _print_devices(op: Any, result: Any) -> None:
    first = result[0] if isinstance(result, list) and result else result
    if isinstance(first, EAGER):
        name = op.decode() if isinstance(op, bytes) else op
        print(f"Executing op {name} in device {first.device}", file=sys.stderr)


# ---------------------------------------------------------------------------------------------------- without a scope
def _default_device(op: Any, inputs: Sequence[Any]) -> str:
    """Return the raw name of the device on which an operator runs without a scope; "" leaves it to the rules."""
    if _is_function(op):
        variable = _first_variable(inputs)
        if variable is not None:
            return str(RAW_DEVICE(variable))
    first = next(device_rules._tensors(inputs), None)
    if first is None or (first.dtype == tf.resource and _is_function(op)):
        return _FIRST if _backend.count("gpu") else ""
    name = "" if type(first) is not EAGER or first.dtype == tf.resource else str(RAW_BACKING_DEVICE(first))
    return "" if name.endswith("CPU:0") else name


def _is_function(op: Any) -> bool:
    """Return True if an operator calls a ``tf.function``."""
    return op.startswith(_FUNCTIONS if isinstance(op, str) else _FUNCTION_BYTES)  # type: ignore[no-any-return]


def _first_variable(inputs: Sequence[Any]) -> Any:
    """Return the handle of an operator's first variable on a GPU, or None."""
    return next((x for x in device_rules._tensors(inputs) if id(x) in VARIABLES), None)


def _wrap_fast(original: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        local = args[0]._thread_local_data
        default = "" if local.device_name else _default_device(args[1], args[3:])
        if not default:
            result = original(*args)
        else:
            try:
                local.device_name = default
                result = original(*args)
            finally:
                local.device_name = ""
        if _logged:
            _print_devices(args[1], result)
        return result

    return run


def _wrap_slow(original: Callable[..., Any]) -> Callable[..., Any]:
    def run(handle: Any, device: str, op: Any, inputs: Any, *args: Any) -> Any:
        device = logical_name(device) if device else _default_device(op, inputs)
        result = original(handle, device, op, inputs, *args)
        if _logged:
            _print_devices(op, result)
        return result

    return run


def _wrap_constant(original: Callable[..., Any]) -> Callable[..., Any]:
    def create(value: Any, ctx: Any, dtype: Any = None) -> Any:
        if ctx.device_name or isinstance(value, EAGER) or hooks._is_operand(3) or not _backend.count("gpu"):
            return original(value, ctx, dtype)
        local = ctx._thread_local_data
        try:
            ctx.ensure_initialized()
            local.device_name = _FIRST
            result = original(value, ctx, dtype)
        finally:
            local.device_name = ""
        result._devshim_anywhere = True
        return result

    return create


def _wrap_gradient(original: Callable[..., Any]) -> Callable[..., Any]:
    """Begin a gradient with ones on the device of each target, also on the host; TensorFlow gives them no scope."""

    def gradient(tape: Any, target: Any, sources: Any, output_gradients: Any = None, *args: Any, **kwargs: Any) -> Any:
        if output_gradients is None and all(type(x) is EAGER for x in target):
            output_gradients = [hooks._create_ones(x) for x in target]
        return original(tape, target, sources, output_gradients, *args, **kwargs)

    return gradient


# ---------------------------------------------------------------------------------------------------- mixed devices
def _wrap_common_device(original: Callable[..., Device]) -> Callable[..., Device]:
    def common_device(backend: TensorflowLocations, op: str, inputs: Sequence[Any]) -> Device:
        scope = backend.device_named(context.context().device_name or "")
        if scope is not None and SCOPE.native:
            return scope
        try:
            found = original(backend, op, inputs)
            return found if found is not CPU or scope is not None else _device_beside_host_inputs(backend, op, inputs)
        except MixedDevicesError:
            pass
        try:
            SCOPE.constants_move = True
            return original(backend, op, inputs)
        except MixedDevicesError:
            moves = _is_function(op) or op in direct_operators.ON_VARIABLES
            variable = _first_variable(inputs) if scope is None and moves else None
            if variable is None:
                raise
            return VARIABLES[id(variable)].gpu.device
        finally:
            SCOPE.constants_move = False

    return common_device


def _device_beside_host_inputs(backend: TensorflowLocations, op: str, inputs: Sequence[Any]) -> Device:
    """Return the host for an operator with data there, and the first of its GPUs if it has only shapes or seeds there.

    Kernels for GPUs read the keys of stateless random numbers from host memory, where TensorFlow computes them.
    """
    on_host = (0, 1, 2, 3) if op.startswith("Stateless") else device_rules._HOST_INPUTS.get(op, ())
    placed = [(number, x, backend.device_of(x)) for number, x in enumerate(device_rules._tensors(inputs))]
    if any(x.dtype == tf.resource for _, x, _ in placed):
        return CPU
    if any(device is CPU and number not in on_host for number, _, device in placed):
        return CPU
    return min((device for *_, device in placed if device is not CPU), default=CPU)


def _wrap_is_hosted(original: Callable[[Any], bool]) -> Callable[[Any], bool]:
    def is_hosted(x: Any) -> bool:
        return original(x) or (SCOPE.constants_move and hasattr(x, "_devshim_anywhere"))

    return is_hosted
