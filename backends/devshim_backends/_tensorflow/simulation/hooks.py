"""Hooks between Python and TensorFlow's eager operators, installed while GPUs are simulated.

Every eager operator of every thread is run by one of three functions of `tensorflow.python.pywrap_tfe`, which
TensorFlow's modules look up at each call. Constants and copies use their own functions. While GPUs are simulated,
these functions are wrapped:

* ``TFE_Py_FastPathExecute``, ``TFE_Py_Execute`` and ``TFE_Py_ExecuteCancelable``: results on a simulated GPU are
  counted, a full one is an error, writes to variables are recorded, and mixed devices are checked (`device_rules`).
* ``constant_op.convert_to_eager_tensor`` and ``_EagerTensorBase._copy_nograd``: results are counted. The tensors that
  Python's operators make of arrays and lists, without choosing a device, are marked.
* ``backprop._fast_fill`` and ``imperative_grad.imperative_grad``: the ones with which a tape begins are created on the
  target's device, and the zeros that it fills in, without choosing a device, are marked.
* ``TFE_ContextOptionsSetRunEagerOpAsFunction``: operators are run directly (`workarounds`).
* ``Context._handle``, which C code reads and expects to succeed: it is a Python function, in which Ctrl-C ends the
  process or causes a `SystemError` (seen in 2.21). The replacement reads it in C.
* ``Context.device`` and ``Graph.device``: TensorFlow's own names of GPUs are refused (`native_names.refused`).

TensorFlow's hook for such purposes, ``TFE_Py_SetEagerTensorProfiler``, cannot be used, because an error in it, such as
Ctrl-C, ends the process (2.16 to 2.21). The tests use it to show that the hooks miss nothing.
"""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import backprop, context, imperative_grad
from tensorflow.python.framework import constant_op, ops

from devshim.devices.device import CPU
from devshim_backends._tensorflow.failures import FAILURES
from devshim_backends._tensorflow.internals.locations import EAGER, RAW_BACKING_DEVICE, this_process
from devshim_backends._tensorflow.simulation import workarounds
from devshim_backends._tensorflow.simulation.device_rules import (
    REFUSED,
    in_data_scope,
    run_if_accepted,
    run_refused_operator,
    set_policy,
)
from devshim_backends._tensorflow.simulation.internals.free_tensors import mark_free_results, may_be_anywhere
from devshim_backends._tensorflow.simulation.memory import LOCAL, UNCOUNTED, VARIABLES, Variable, count_tensor
from devshim_backends._tensorflow.simulation.native_names.refused import NAME_CHECKS
from devshim_backends._tensorflow.simulation.storage import SIMULATED

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.devices.device import Device
    from devshim_backends._tensorflow.internals.locations import TensorflowLocations
    from devshim_backends._tensorflow.simulation.device_rules import RunOn
    from devshim_backends._tensorflow.simulation.storage import TensorflowSimulatedDevice

__all__ = ["begin_epoch", "count_results", "start", "stop"]

_SIMULATED_BY_NAME: dict[str, TensorflowSimulatedDevice | None] = {}
"""Maps a TensorFlow device name to the simulated GPU, or to None. Entries are added on first use."""

_ENTRIES: tuple[tuple[Any, str], ...] = (
    (pywrap_tfe, "TFE_Py_FastPathExecute"),
    (pywrap_tfe, "TFE_Py_Execute"),
    (pywrap_tfe, "TFE_Py_ExecuteCancelable"),
    (constant_op, "convert_to_eager_tensor"),
    (ops._EagerTensorBase, "_copy_nograd"),
    (backprop, "_fast_fill"),
    (imperative_grad, "imperative_grad"),
    (pywrap_tfe, "TFE_ContextOptionsSetRunEagerOpAsFunction"),
    (context.Context, "_handle"),
    *((owner, name) for owner, name, _ in NAME_CHECKS),
)
_ORIGINALS = tuple(getattr(owner, name) for owner, name in _ENTRIES)
_FAST, _EXECUTE, _CANCELABLE, _CONSTANT, _COPY, _FILL, _GRADIENT, *_ = _ORIGINALS

_backend: TensorflowLocations
_epoch = 0


def start(backend: TensorflowLocations) -> None:
    """Install the hooks, for all threads; this thread already has the device policy."""
    global _backend
    _backend = backend
    begin_epoch()
    for (owner, name), wrapper in zip(_ENTRIES, _WRAPPERS, strict=True):
        setattr(owner, name, wrapper)
    workarounds.run_operators_directly(backend, backend.simulated > 0)
    _SIMULATED_BY_NAME.clear()


def begin_epoch() -> None:
    """Let each other thread set its device policy at its next operator; this thread already has it."""
    global _epoch
    _epoch += 1
    LOCAL.epoch = _epoch


def stop() -> None:
    """Uninstall the hooks. If other code has wrapped one in turn, it stays inside that wrapper, without effect."""
    for (owner, name), wrapper, original in zip(_ENTRIES, _WRAPPERS, _ORIGINALS, strict=True):
        if getattr(owner, name) is wrapper:
            setattr(owner, name, original)
    workarounds.run_operators_directly(_backend, False)
    _SIMULATED_BY_NAME.clear()


def count_results(result: Any, last: bool = False) -> None:
    """Count a new tensor, or lists of them, if it is on a simulated GPU; raises as `count_tensor` does."""
    if type(result) is EAGER:
        gpu = _simulated_device(RAW_BACKING_DEVICE(result))
        if gpu is not None:
            count_tensor(result, gpu, last=last)
    elif type(result) is list:
        for each in result:
            count_results(each, last)


def _simulated_device(name: str) -> TensorflowSimulatedDevice | None:
    try:
        return _SIMULATED_BY_NAME[name]
    except KeyError:
        device = _backend.device_named(name)
        shown = device is not None and device.kind == "gpu" and device.index < _backend.simulated
        shown = shown and name.startswith(this_process())  # and not of another process in a cluster
        gpu = SIMULATED[device.index] if device is not None and shown else None
        _SIMULATED_BY_NAME[name] = gpu
        return gpu


# ---------------------------------------------------------------------------------------------------- the hooks
def _run_fast(*args: Any) -> Any:
    """Wrap ``TFE_Py_FastPathExecute(context, op, name, *inputs, *attributes)``."""
    if LOCAL.epoch != _epoch:
        _enter_simulation()
    special = _SPECIAL.get(args[1])
    try:
        if special is not None:
            result = special(args)
        elif args[1] in REFUSED:
            result = run_if_accepted(_backend, args[1], args[3:], _run_elsewhere(args), partial(_FAST, *args))
        else:
            result = _FAST(*args)
    except FAILURES as error:
        result = run_refused_operator(_backend, args[1], args[3:], _run_elsewhere(args), error)
    mark_free_results(args[1], args[3:], result)
    if VARIABLES or args[1] == "VarHandleOp":
        _record_results(args[1], args[3:], args[3:], result)
    elif result is not None:
        count_results(result)
    return result


def _run_identity(args: tuple[Any, ...]) -> Any:
    """Run Identity, the only operator whose input TensorFlow's policy lets move.

    Outside any scope, and in that of `ds.run` or `ds.value_and_grad`, a tensor stays on its GPU.
    """
    x = args[3]
    stays = type(x) is EAGER and (not context.context().device_name or in_data_scope())
    if stays and _simulated_device(RAW_BACKING_DEVICE(x)) is not None:
        return _run_fast_on(_backend.device_of(x), args)
    return _FAST(*args)


_SPECIAL: dict[str, Any] = {
    "Identity": _run_identity,
    **dict.fromkeys(workarounds.ON_VARIABLES, workarounds.on_variable),
}


def _run_elsewhere(args: tuple[Any, ...]) -> RunOn:
    """Return a function that runs the operator on a device, with these inputs and attributes or with others."""
    return lambda device, inputs: _run_fast_on(device, (*args[:3], *inputs))


def _run_fast_on(device: Device, args: tuple[Any, ...]) -> Any:
    scope = context.context().device_name
    if scope and _backend.device_named(scope) is device:
        return _FAST(*args)
    with tf.device(_backend.to_native(device)):
        return _FAST(*args)


def _logical_name(device: Device) -> str:
    return "/CPU:0" if device is CPU else f"/CPU:{device.index + 1}"


def _run_execute(*args: Any) -> Any:
    """Wrap ``TFE_Py_Execute(context, device, op, inputs, attributes, ...)``."""
    return _run_slow(_EXECUTE, args)


def _run_cancelable(*args: Any) -> Any:
    """Wrap ``TFE_Py_ExecuteCancelable(context, device, op, inputs, attributes, cancellation, ...)``."""
    return _run_slow(_CANCELABLE, args)


def _run_slow(execute: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    if LOCAL.epoch != _epoch:
        _enter_simulation()
    op = args[2].decode() if isinstance(args[2], bytes) else args[2]

    def run(device: Device, given: Any) -> Any:
        return execute(args[0], _logical_name(device), args[2], given, *args[4:])

    try:
        if op in REFUSED:
            result = run_if_accepted(_backend, op, args[3], run, partial(execute, *args))
        else:
            result = execute(*args)
    except FAILURES as error:
        result = run_refused_operator(_backend, op, args[3], run, error)
    mark_free_results(op, args[3], result)
    _record_results(op, args[3], args[4] or (), result)
    return result


def _create_constant(value: Any, *args: Any, **kwargs: Any) -> Any:
    result = _CONSTANT(value, *args, **kwargs)
    if result is not value:
        if may_be_anywhere(result):
            result._devshim_anywhere = True
        count_results(result)
    return result


def _copy_tensor(tensor: Any, *args: Any, **kwargs: Any) -> Any:
    result = _COPY(tensor, *args, **kwargs)
    count_results(result)
    return result


def _fill_ones(*args: Any, **kwargs: Any) -> Any:
    result = _FILL(*args, **kwargs)
    result._devshim_anywhere = True
    return result


def _compute_gradient(
    tape: Any, target: Any, sources: Any, output_gradients: Any = None, *args: Any, **kwargs: Any
) -> Any:
    if output_gradients is None and any(type(x) is EAGER and _simulated_device(x.backing_device) for x in target):
        output_gradients = [_create_ones(x) for x in target]
    return _GRADIENT(tape, target, sources, output_gradients, *args, **kwargs)


def _create_ones(x: Any) -> Any:
    """Return ones on a tensor's device."""
    with tf.device(x.backing_device if type(x) is EAGER else x.device):
        return tf.ones_like(x)


_HANDLE = property(attrgetter("_context_handle"))

_WRAPPERS = (
    *(_run_fast, _run_execute, _run_cancelable, _create_constant, _copy_tensor, _fill_ones, _compute_gradient),
    *(workarounds.set_eager_op_as_function, _HANDLE),
    *(wrapper for *_, wrapper in NAME_CHECKS),
)


def _enter_simulation() -> None:
    """Make this thread's operators refuse mixed devices, because TensorFlow's device policy is thread-local."""
    LOCAL.epoch = _epoch
    if _backend.simulated:
        context.context().ensure_initialized()
        set_policy(context.DEVICE_PLACEMENT_EXPLICIT)


# ---------------------------------------------------------------------------------------------------- variables
def _record_results(op: str, inputs: Any, attributes: Any, result: Any) -> None:
    """Count an operator's results, and record what it did to variables."""
    if op == "ReadVariableOp":
        variable = VARIABLES.get(id(inputs[0]))
        if variable is not None:
            return variable.on_read(result[0] if type(result) is list else result)
    elif op == "VarHandleOp":
        return _new_variable(attributes, result[0] if type(result) is list else result)
    else:
        for x in inputs:
            variable = VARIABLES.get(id(x))
            if variable is not None:
                variable.on_write()
    return count_results(result)


def _new_variable(attributes: Any, handle: Any) -> None:
    gpu = _simulated_device(handle.device)  # the handle is in host memory, but the variable's value is not
    if gpu is not None:
        named = dict(zip(attributes[::2], attributes[1::2], strict=False))
        dtype = tf.as_dtype(named["dtype"]).as_datatype_enum
        if dtype not in UNCOUNTED:
            Variable(handle, gpu, dtype)
