"""The device rules of operators on simulated GPUs: which inputs an operator accepts, and where it runs.

TensorFlow's device policy "explicit" refuses an input that is not where the operator wants it. The policy does not know
that logical CPUs represent GPUs, and refuses ``tf.reduce_sum(x)`` because of its axis. So devshim checks each refused
operator again, and runs it if a real GPU would:

* 0-d tensors, and int32 tensors, which TensorFlow natively keeps on the host, may be on the host beside tensors on a
  GPU. int32 tensors that devshim did not place may also be on another GPU.
* An operator's shapes, axes and bounds may be on the host in int64, too: the GPU kernels read them there.
* The same applies to the zeros that a tape fills in, and to the array in ``x + array``, for which TensorFlow chooses a
  device without regard to ``x``.
* In a GPU's scope an operator runs there on tensors that are all on the host, as documented for `ds.on`.
* While a model or optimizer on several devices runs, its inputs are copied to one device (`models.align_devices`).
* In the scope of `ds.run` or `ds.value_and_grad`, an operator runs on the device of its tensors if they are on one GPU,
  because the function has placed them there. What the function creates without naming a device, and what it computes
  of that alone, follows them: constants, zeros, draws. A real TensorFlow moves all of them to the scope's device
  silently. A scope that the function opens has its own rule again.
* Outside any scope an operator runs on the device of its tensors, if they are on one device. A real TensorFlow runs on
  gpu:0, which is the same for tensors on that GPU; others it moves there silently.

Everything else is refused, by an error that is both TensorFlow's and devshim's.

TensorFlow's policy takes longer to raise its error than the operator takes to run. If the policy refuses an operator
that a real GPU would run, devshim checks that operator before each later run (`run_if_accepted`).
"""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import context

from devshim.devices.device import CPU
from devshim.registry import mismatches
from devshim_backends._tensorflow.failures import MixedDevicesError, full_device_error
from devshim_backends._tensorflow.internals.locations import EAGER, PLACED, RAW_BACKING_DEVICE
from devshim_backends._tensorflow.models.align_devices import SPLIT, copy_tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from types import FrameType

    from devshim.devices.device import Device
    from devshim_backends._tensorflow.internals.locations import TensorflowLocations

    RunOn = Callable[[Device, Sequence[Any]], Any]

__all__ = [
    "REFUSED",
    "DataScope",
    "in_data_scope",
    "is_operand",
    "run_if_accepted",
    "run_refused_operator",
    "set_policy",
]


class _DataScopeName(str):
    """The name of a `DataScope`'s device: a scope inside it has a plain name, even on the same device."""

    __slots__ = ()


_data_scope_name = cache(_DataScopeName)  # a name must never be freed: see `keep_alive`


class DataScope:
    """The scope in which `ds.run` and `ds.value_and_grad` compute where their tensors are."""

    def __init__(self, scope: AbstractContextManager[object]) -> None:
        self._scope = scope

    def __enter__(self) -> None:
        self._scope.__enter__()
        state = context.context()._thread_local_data
        state.device_name = _data_scope_name(state.device_name)

    def __exit__(self, *failure: Any) -> None:
        self._scope.__exit__(*failure)


def in_data_scope() -> bool:
    """Return True if the innermost scope is that of `ds.run` or `ds.value_and_grad`."""
    return type(context.context().device_name) is _DataScopeName


REFUSED: set[str] = set()
"""The operators that TensorFlow's policy has refused, and that a real GPU would run."""

_OPERATORS = frozenset({"binary_op_wrapper", "r_binary_op_wrapper"})
"""TensorFlow's functions that implement Python's operators (2.16 to 2.21)."""

_HOST = "/job:localhost/replica:0/task:0/device:CPU:0"
_HOST_DTYPES = frozenset({tf.int32, tf.string})
"""Dtypes that TensorFlow natively keeps on the host, even in a GPU's scope."""
_HANDLES = frozenset({tf.resource, tf.variant})
_HOST_INPUTS = {
    **dict.fromkeys(("Reshape", "BroadcastTo", "Transpose", "ConjugateTranspose", "Tile", "ExpandDims"), (1,)),
    **dict.fromkeys(("Sum", "Prod", "Mean", "Max", "Min", "All", "Any", "EuclideanNorm", "ReverseV2"), (1,)),
    **dict.fromkeys(("Pad", "PadV2", "MirrorPad", "MirrorPadGrad", "SplitV"), (1,)),
    **dict.fromkeys(("Slice", "Roll"), (1, 2)),
    **dict.fromkeys(("StridedSlice", "ResourceStridedSliceAssign", "TensorStridedSliceUpdate"), (1, 2, 3)),
    "StridedSliceGrad": (0, 1, 2, 3),
    **dict.fromkeys(("Fill", "Empty", "RandomUniform", "RandomStandardNormal", "TruncatedNormal"), (0,)),
    "ScatterNd": (2,),
    **dict.fromkeys(("BroadcastArgs", "BroadcastGradientArgs", "ConcatOffset"), (0, 1)),
}
"""Operator -> the inputs that its kernels for GPUs read from host memory (``HostMemory`` in TensorFlow's sources)."""


def run_refused_operator(backend: TensorflowLocations, op: str, inputs: Sequence[Any], run: RunOn, error: Any) -> Any:
    """Run an operator that TensorFlow's device policy has refused, if a real GPU would run it.

    Args:
        backend: The adapter.
        op: The operator's name.
        inputs: The operator's inputs; attributes after them are ignored.
        run: Runs the operator on a device, with these inputs or with replacements.
        error: The operator's error.

    Raises:
        MixedDevicesError: The tensors are on different devices, or not on the scope's device.
        FullDeviceError: The host has too little memory for a result on a simulated GPU.
        Exception: ``error`` itself, if it does not come from the policy.
    """
    if "Tensors on conflicting devices" not in error.message:
        raise full_device_error(error.message, backend.device_named) or error
    try:
        device = _common_device(backend, op, inputs)
    except MixedDevicesError as refused:
        device = _device_for_split_model(backend, inputs, refused)
        inputs = [copy_tensors(x, device) if _is_moved(x) else x for x in inputs]
    else:
        REFUSED.add(op)
    return _run_without_policy(run, device, inputs, context.context().device_policy)


def run_if_accepted(
    backend: TensorflowLocations, op: str, inputs: Sequence[Any], run: RunOn, natively: Callable[[], Any]
) -> Any:
    """Run an operator that TensorFlow's policy has refused before: without the policy, if a real GPU would run it.

    Args:
        backend: As for `run_refused_operator`.
        op: As for `run_refused_operator`.
        inputs: As for `run_refused_operator`.
        run: As for `run_refused_operator`.
        natively: Runs the operator as TensorFlow does, with the policy, which has the last word.
    """
    policy = pywrap_tfe.TFE_ContextGetDevicePlacementPolicy(context.context()._handle)
    if policy != context.DEVICE_PLACEMENT_EXPLICIT or _are_in_place(inputs):
        return natively()
    try:
        device = _common_device(backend, op, inputs)
    except MixedDevicesError:
        return natively()
    return _run_without_policy(run, device, inputs, policy)


def _are_in_place(inputs: Sequence[Any]) -> bool:
    """Return True if all tensors are where TensorFlow runs an operator, so that its policy refuses nothing."""
    place = context.context().device_name or _HOST
    return all(RAW_BACKING_DEVICE(x) == place for x in inputs if type(x) is EAGER)


def _run_without_policy(run: RunOn, device: Device, inputs: Sequence[Any], policy: int) -> Any:
    native = context.context()._handle
    try:  # set this thread's policy for one operator; calls in C, so that Ctrl-C cannot come before the second
        pywrap_tfe.TFE_ContextSetThreadLocalDevicePlacementPolicy(native, context.DEVICE_PLACEMENT_SILENT)
        return run(device, inputs)
    finally:
        pywrap_tfe.TFE_ContextSetThreadLocalDevicePlacementPolicy(native, policy)


def is_operand(depth: int = 2) -> bool:
    """Return True if a tensor is being made from the other operand in ``x + array``; it has no chosen device yet.

    An error here would not reach the user: on a `ValueError` TensorFlow lets the array try, and NumPy reads the GPU.
    """
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None and (frame.f_globals.get("__name__") or "").startswith("tensorflow."):
        if frame.f_code.co_name in _OPERATORS:
            return True
        frame = frame.f_back
    return False


def set_policy(policy: int) -> None:
    """Set this thread's device policy."""
    pywrap_tfe.TFE_ContextSetThreadLocalDevicePlacementPolicy(context.context()._handle, policy)


def _device_for_split_model(backend: TensorflowLocations, inputs: Sequence[Any], refused: MixedDevicesError) -> Device:
    """Return the device for inputs of several devices: that of a variable, of the scope, or of the last part.

    Without any of these, it is the device of the input with the most dimensions.

    Raises:
        MixedDevicesError: No model or optimizer on several devices is running; the error is ``refused``.
    """
    if not SPLIT.active:
        raise refused
    found = list(_tensors(inputs))
    at_handle = next((backend.device_named(x.device) for x in found if x.dtype == tf.resource), None)
    scope = backend.device_named(context.context().device_name or "")
    return at_handle or scope or SPLIT.last_device or backend.device_of(max(found, key=lambda x: len(x.shape)))


def _is_moved(x: Any) -> bool:
    """Return True if an input is copied to the others' device, as tensors and lists of tensors are."""
    return next((True for each in _tensors([x]) if each.dtype not in _HOST_DTYPES), False)


def _common_device(backend: TensorflowLocations, op: str, inputs: Sequence[Any]) -> Device:
    """Return the one device on which an operator may run."""
    scope = backend.device_named(context.context().device_name or "")
    follows = in_data_scope()
    placed = [(x, _device_of(backend, x)) for x in _tensors(inputs)]
    on_host = _HOST_INPUTS.get(op, ())
    located = {
        number: device
        for number, (x, device) in enumerate(placed)
        if not (number in on_host and (follows or device is CPU)) and not (device is CPU and _may_stay_on_host(x))
    }
    if follows:  # tensors for which TensorFlow chose the scope's device decide only if nothing else does
        anywhere = {n for n, each in located.items() if each is scope and hasattr(placed[n][0], "_devshim_anywhere")}
        located = {n: each for n, each in located.items() if n not in anywhere} or located
    firm = {number: device for number, device in located.items() if not _is_hosted(placed[number][0])}
    if firm:
        located = firm
    elif scope is not None:  # int32 results stay beside the tensor that the function has placed, if there is only one
        located = located if follows and len(set(located.values())) == 1 else {}
    elif not all(_is_hosted(x) for x, _ in placed):
        return CPU  # the inputs are 0-d host tensors, and a shape that was created in a GPU's scope
    found = set(located.values())
    if scope is not None and found <= {CPU}:
        return scope
    if len(found) == 1 and follows:
        return found.pop()
    if len(found | ({scope} if scope is not None else set())) != 1:
        raise _mixed_devices_error(op, located, scope)
    return found.pop()


def _tensors(inputs: Sequence[Any]) -> Iterator[Any]:
    for x in inputs:
        if isinstance(x, (EAGER, tf.Variable)):
            yield x
        elif isinstance(x, (list, tuple)):
            yield from _tensors(x)


def _device_of(backend: TensorflowLocations, x: Any) -> Device:
    """Return a tensor's device, or that of a handle's target; the handle's own memory is always on the host."""
    found = backend.device_named(x.device) if x.dtype in _HANDLES else None
    return found or backend.device_of(x)


def _may_stay_on_host(x: Any) -> bool:
    """Return True if a tensor on the host may be used together with tensors on a GPU."""
    if x.dtype in _HANDLES:
        return False
    return len(x.shape) == 0 or x.dtype in _HOST_DTYPES or hasattr(x, "_devshim_anywhere")


def _is_hosted(x: Any) -> bool:
    """Return True if a real GPU would keep a tensor in host memory: int32 that devshim did not place.

    TensorFlow keeps such tensors and uses them on every device, such as the shape of ones in the gradient of a sum.
    """
    return x.dtype in _HOST_DTYPES and not hasattr(x, PLACED)


def _mixed_devices_error(op: str, located: dict[int, Device], scope: Device | None) -> MixedDevicesError:
    problem = mismatches.list_devices({f"input {number}": device for number, device in located.items()})
    if scope is not None:
        problem += f", the scope is {scope}"
    best = max(located.values(), default=scope)
    return MixedDevicesError(
        f"TensorFlow's {op} needs its tensors on one device: {problem}",
        f"move them with ds.place(x, '{best}'), and compute inside `with ds.on('{best}'):`, which also applies to "
        "intermediate results",
    )
