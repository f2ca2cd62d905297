"""Hooks between Python and TensorFlow's eager operators, installed while GPUs are simulated.

Every eager operator of every thread is run by one of three functions of `tensorflow.python.pywrap_tfe`, which
TensorFlow's modules look up at each call. Constants and copies use functions of their own. While GPUs are simulated,
these functions are wrapped:

* ``TFE_Py_FastPathExecute``, ``TFE_Py_Execute`` and ``TFE_Py_ExecuteCancelable``: results on a simulated GPU are
  counted, a full one is an error, writes to variables are recorded, and mixed devices are checked (`device_rules`).
* ``constant_op.convert_to_eager_tensor`` and ``_EagerTensorBase._copy_nograd``: results are counted. The tensors that
  Python's operators make of arrays and lists, without choosing a device, are marked.
* ``backprop._fast_fill`` and ``imperative_grad.imperative_grad``: the ones with which a tape begins are created on the
  target's device, and the zeros that it fills in, without choosing a device, are marked.
* ``TFE_ContextOptionsSetRunEagerOpAsFunction``: operators are run directly (`direct_operators`).
* ``Context._handle``, which C code reads and expects to succeed: it is a Python function, in which Ctrl-C ends the
  process or causes a `SystemError` (seen in 2.21). The replacement reads it in C.
* ``Context.device`` and ``Graph.device``: TensorFlow's own names of GPUs are refused (`gpu_names`).

TensorFlow's hook for such purposes, ``TFE_Py_SetEagerTensorProfiler``, cannot be used, because an error in it, such as
Ctrl-C, ends the process (2.16 to 2.21). The tests use it to show that the hooks miss nothing.
"""

from __future__ import annotations

import sys
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import backprop, context, imperative_grad
from tensorflow.python.framework import constant_op, ops

from devshim_backends._tensorflow.failures import FAILURES
from devshim_backends._tensorflow.locations import EAGER
from devshim_backends._tensorflow.simulation import direct_operators
from devshim_backends._tensorflow.simulation.device_rules import run_refused_operator, set_policy
from devshim_backends._tensorflow.simulation.devices import SIMULATED
from devshim_backends._tensorflow.simulation.gpu_names import NAMED
from devshim_backends._tensorflow.simulation.memory import LOCAL, UNCOUNTED, VARIABLES, Variable, count

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from devshim.devices.device import Device
    from devshim_backends._tensorflow.locations import TensorflowPlaces
    from devshim_backends._tensorflow.simulation.devices import TensorflowCard

__all__ = ["start", "stop", "told"]

_CARD_OF: dict[str, TensorflowCard | None] = {}
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
    *((owner, name) for owner, name, _ in NAMED),
)
_THEIRS = tuple(getattr(owner, name) for owner, name in _ENTRIES)
_FAST, _EXECUTE, _CANCELABLE, _CONSTANT, _COPY, _FILL, _GRADIENT, *_ = _THEIRS

_OPERATORS = frozenset({"binary_op_wrapper", "r_binary_op_wrapper"})
"""TensorFlow's functions that implement Python's operators (2.16 to 2.21)."""

_backend: TensorflowPlaces
_epoch = 0


def start(backend: TensorflowPlaces) -> None:
    """Install the hooks, for all threads; this thread already has the device policy."""
    global _backend, _epoch
    _backend, _epoch = backend, _epoch + 1
    LOCAL.epoch = _epoch
    for (owner, name), ours in zip(_ENTRIES, _OURS, strict=True):
        setattr(owner, name, ours)
    direct_operators.switch(backend, True)
    _CARD_OF.clear()


def stop() -> None:
    """Uninstall the hooks. If other code has wrapped one in turn, it stays inside that wrapper and does no more."""
    for (owner, name), ours, theirs in zip(_ENTRIES, _OURS, _THEIRS, strict=True):
        if getattr(owner, name) is ours:
            setattr(owner, name, theirs)
    direct_operators.switch(_backend, False)
    _CARD_OF.clear()


def told(made: Any, last: bool = False) -> None:
    """Count a new tensor, or lists of them, if it is on a simulated GPU; raises as `count` does."""
    if type(made) is EAGER:
        card = _card_named(made.backing_device)
        if card is not None:
            count(made, card, last=last)
    elif type(made) is list:
        for each in made:
            told(each, last)


def _card_named(name: str) -> TensorflowCard | None:
    try:
        return _CARD_OF[name]
    except KeyError:
        device = _backend.named(name)
        shown = device is not None and device.kind == "gpu" and device.index < _backend.simulated
        card = SIMULATED[device.index] if device is not None and shown else None
        _CARD_OF[name] = card
        return card


# ---------------------------------------------------------------------------------------------------- the hooks
def _fast(*args: Any) -> Any:
    """Wrap ``TFE_Py_FastPathExecute(context, op, name, *inputs, *attributes)``."""
    if LOCAL.epoch != _epoch:
        _meet()
    special = _SPECIAL.get(args[1])
    try:
        made = _FAST(*args) if special is None else special(args)
    except FAILURES as error:
        made = run_refused_operator(
            _backend, args[1], args[3:], lambda device, given: _fast_on(device, (*args[:3], *given)), error
        )
    if VARIABLES or args[1] == "VarHandleOp":
        _follow(args[1], args[3:], args[3:], made)
    elif made is not None:
        told(made)
    return made


def _identity(args: tuple[Any, ...]) -> Any:
    """Run Identity, the only operator whose input TensorFlow's policy lets move; outside any scope it stays put."""
    x = args[3]
    if type(x) is EAGER and not context.context().device_name and _card_named(x.backing_device) is not None:
        with tf.device(x.backing_device):
            return _FAST(*args)
    return _FAST(*args)


_SPECIAL: dict[str, Any] = {
    "Identity": _identity,
    **dict.fromkeys(direct_operators.ON_VARIABLES, direct_operators.on_variable),
}


def _fast_on(device: Device, args: tuple[Any, ...]) -> Any:
    with tf.device(_backend.to_native(device)):
        return _FAST(*args)


def _name_of(device: Device) -> str:
    native = _backend.to_native(device)
    return native if isinstance(native, str) else str(native.to_string())


def _execute(*args: Any) -> Any:
    """Wrap ``TFE_Py_Execute(context, device, op, inputs, attributes, ...)``."""
    return _slow(_EXECUTE, args)


def _cancelable(*args: Any) -> Any:
    """Wrap ``TFE_Py_ExecuteCancelable(context, device, op, inputs, attributes, cancellation, ...)``."""
    return _slow(_CANCELABLE, args)


def _slow(execute: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    if LOCAL.epoch != _epoch:
        _meet()
    op = args[2].decode() if isinstance(args[2], bytes) else args[2]
    try:
        made = execute(*args)
    except FAILURES as error:

        def run(device: Device, given: Any) -> Any:
            return execute(args[0], _name_of(device), args[2], given, *args[4:])

        made = run_refused_operator(_backend, op, args[3], run, error)
    _follow(op, args[3], args[4] or (), made)
    return made


def _constant(value: Any, *args: Any, **kwargs: Any) -> Any:
    made = _CONSTANT(value, *args, **kwargs)
    if made is not value:
        if made.shape.rank and not context.context().device_name and _is_operand():
            made._devshim_anywhere = True
        told(made)
    return made


def _is_operand() -> bool:
    """Return True if a tensor is being made of the other operand in ``x + array``; it has no chosen device yet.

    An error here would not reach the user: on a `ValueError` TensorFlow lets the array try, and NumPy reads the GPU.
    """
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and (frame.f_globals.get("__name__") or "").startswith("tensorflow."):
        if frame.f_code.co_name in _OPERATORS:
            return True
        frame = frame.f_back
    return False


def _copy(tensor: Any, *args: Any, **kwargs: Any) -> Any:
    made = _COPY(tensor, *args, **kwargs)
    told(made)
    return made


def _fill(*args: Any, **kwargs: Any) -> Any:
    made = _FILL(*args, **kwargs)
    made._devshim_anywhere = True
    return made


def _gradient(tape: Any, target: Any, sources: Any, output_gradients: Any = None, *args: Any, **kwargs: Any) -> Any:
    if output_gradients is None and any(type(x) is EAGER and _card_named(x.backing_device) for x in target):
        output_gradients = [_ones_at(x) for x in target]
    return _GRADIENT(tape, target, sources, output_gradients, *args, **kwargs)


def _ones_at(x: Any) -> Any:
    """Return ones on a tensor's device."""
    with tf.device(x.backing_device if type(x) is EAGER else x.device):
        return tf.ones_like(x)


_HANDLE = property(attrgetter("_context_handle"))

_OURS = (
    *(_fast, _execute, _cancelable, _constant, _copy, _fill, _gradient, direct_operators.option, _HANDLE),
    *(ours for *_, ours in NAMED),
)


def _meet() -> None:
    """Make this thread's operators refuse mixed devices, because TensorFlow's device policy is thread-local."""
    LOCAL.epoch = _epoch
    if _backend.simulated:
        context.context().ensure_initialized()
        set_policy(context.DEVICE_PLACEMENT_EXPLICIT)


# ---------------------------------------------------------------------------------------------------- variables
def _follow(op: str, inputs: Any, attributes: Any, made: Any) -> None:
    """Count an operator's results, and record what it did to variables."""
    if op == "ReadVariableOp":
        variable = VARIABLES.get(id(inputs[0]))
        if variable is not None:
            return variable.read(made[0] if type(made) is list else made)
    elif op == "VarHandleOp":
        return _new_variable(attributes, made[0] if type(made) is list else made)
    else:
        for x in inputs:
            variable = VARIABLES.get(id(x))
            if variable is not None:
                variable.written()
    return told(made)


def _new_variable(attributes: Any, handle: Any) -> None:
    card = _card_named(handle.device)  # the handle is in host memory, but the variable's value is not
    if card is not None:
        named = dict(zip(attributes[::2], attributes[1::2], strict=False))
        dtype = tf.as_dtype(named["dtype"]).as_datatype_enum
        if dtype not in UNCOUNTED:
            Variable(handle, card, dtype)
