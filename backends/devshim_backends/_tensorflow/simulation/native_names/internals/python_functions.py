"""`tf.py_function` on simulated GPUs: its body gets tensors on the device of the operator, as on a real GPU.

``EagerPyFunc`` has a kernel for GPUs, which gives the body the tensors of the GPU and no scope. Beside int32, strings
and handles, the kernel of the host runs. TensorFlow takes logical CPUs for the host, and gives the body the host's
tensors, so the device is found here when the operator is created, and the tensors are labelled when the body is called.

An operator of a `tf.function` without a device is where the call of the function is. The function that is called alone
decides. If threads call functions on several devices at the same time, the scope of the trace decides.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.client import pywrap_tf_session
from tensorflow.python.data.ops import structured_function
from tensorflow.python.distribute import device_util
from tensorflow.python.eager import context
from tensorflow.python.framework import ops
from tensorflow.python.ops import gen_script_ops, script_ops

from devshim_backends._tensorflow.simulation import hooks
from devshim_backends._tensorflow.simulation.native_names.internals.clusters import CLUSTER
from devshim_backends._tensorflow.simulation.native_names.internals.graph_names import requested_device
from devshim_backends._tensorflow.simulation.native_names.internals.host_operators import refuse_host
from devshim_backends._tensorflow.simulation.native_names.names import is_simulated_gpu, logical_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from devshim.simulation.patching import Patches
    from devshim_backends._tensorflow.simulation.simulate import TensorflowSimulation

__all__ = ["called_on", "install", "is_traced"]

_ON_HOST = frozenset({tf.int32, tf.string, tf.resource, tf.variant})
"""The dtypes that the kernel for GPUs lacks."""
_SET_RAW = pywrap_tf_session.PyOperation._set_device_from_string

_backend: TensorflowSimulation
_calls: list[str] = []
"""The devices of the calls of functions that are running."""
_functions = 0
"""The number of operators without a device in functions."""
_datasets: list[Any] = []
"""The graphs around the functions of datasets that are traced; None is eager code."""


def install(patches: Patches, backend: TensorflowSimulation) -> None:
    """Give the bodies of `tf.py_function` tensors on simulated GPUs."""
    global _backend, _functions
    _backend, _functions = backend, 0
    create = gen_script_ops.eager_py_func
    patches.replace(gen_script_ops, "eager_py_func", _wrap_create(create))
    patches.replace(script_ops.EagerFunc, "__call__", _wrap_call(script_ops.EagerFunc.__call__))
    traced = structured_function.StructuredFunctionWrapper
    patches.replace(traced, "__init__", _wrap_trace(traced.__init__))


class _Location:
    """The device of an operator, and the scope of its body.

    Attributes:
        device: TensorFlow's name of the GPU, or "" for the host.
        scope: The scope of eager code, or None in a graph, whose bodies have none.
        follows: True if the operator is where the call of its function is.
    """

    __slots__ = ("device", "follows", "scope")

    def __init__(self, device: str, scope: str | None, follows: bool) -> None:
        self.device, self.scope, self.follows = device, scope, follows


# ---------------------------------------------------------------------------------------------------- the operator
def _wrap_create(original: Callable[..., Any]) -> Callable[..., Any]:
    def create(input: Any, token: str, Tout: Any, is_async: bool = False, name: Any = None) -> Any:
        global _functions
        function = script_ops._py_funcs.get(token)
        if function is None or not _backend.count("gpu"):
            return original(input, token, Tout, is_async, name)
        given = [x if tf.is_tensor(x) else tf.convert_to_tensor(x) for x in input]
        hosted = any(tf.as_dtype(dtype).base_dtype in _ON_HOST for dtype in (*(x.dtype for x in given), *Tout))
        if context.executing_eagerly():
            return _run(original, function, hosted, given, token, Tout, is_async, name)
        device, follows = _device_in_graph()
        function._devshim_location = _Location("" if hosted else device, None, follows and not hosted)
        _functions += follows
        result = original(given, token, Tout, is_async, name)
        if hosted and (follows or device):
            _place_on_host(result.op if tf.is_tensor(result) or isinstance(result, tf.Operation) else result[0].op)
        return result

    return create


def _run(original: Callable[..., Any], function: Any, hosted: bool, *args: Any) -> Any:
    """Run the operator in eager code, on its device; the body has the scope of the program."""
    local = context.context()._thread_local_data
    scope = local.device_name
    full = tf.DeviceSpec.from_string(scope or "")
    device = scope if full.device_type else CLUSTER.first
    if hosted and is_simulated_gpu(device):
        refuse_host("EagerPyFunc", scope if full.device_type else "")
        device = f"{CLUSTER.here}/device:CPU:0"
    function._devshim_location = _Location(device if is_simulated_gpu(device) else "", scope, follows=False)
    try:
        local.device_name = device
        return original(*args)
    finally:
        local.device_name = scope


def _device_in_graph() -> tuple[str, bool]:
    """Return the GPU of the operator that is created, or "", and True if it is where its function is called."""
    datasets = list(_datasets)
    graph, end = ops.get_default_graph(), datasets[-1] if datasets else None
    found = tf.DeviceSpec()
    while graph is not None and (not datasets or graph is not end):
        op = device_util._FakeOperation()
        graph._apply_device_functions(op)
        found = tf.DeviceSpec.from_string(op.device).make_merged_spec(found)
        if found.device_type:
            name = logical_name(found.to_string())
            return name if is_simulated_gpu(name) else "", False
        graph = getattr(graph, "outer_graph", None)
    if datasets:  # their functions run on the host
        return "", False
    scope = context.context().device_name
    return scope if scope and tf.DeviceSpec.from_string(scope).device_type else CLUSTER.first, True


def _place_on_host(op: Any) -> None:
    """Let an operator of a function run on the host; the program sees the device that it has requested."""
    if op.graph.building_function:
        host = tf.DeviceSpec.from_string(op.device).replace(device_type="CPU", device_index=0)
        op._devshim_requested = requested_device(op)
        _SET_RAW(op, host.to_string())


def _wrap_trace(original: Callable[..., None]) -> Callable[..., None]:
    def trace(self: Any, *args: Any, **kwargs: Any) -> None:
        _datasets.append(None if context.executing_eagerly() else ops.get_default_graph())
        try:
            original(self, *args, **kwargs)
        finally:
            _datasets.pop()

    return trace


# ---------------------------------------------------------------------------------------------------- the body
def is_traced() -> bool:
    """Return True if an operator of a function may run where the function is called."""
    return _functions > 0


@contextmanager
def called_on(device: str) -> Iterator[None]:
    """Record that a function is called on a device."""
    _calls.append(device)
    try:
        yield
    finally:
        _calls.remove(device)


def _wrap_call(original: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: Any, device: Any, token: Any, args: Sequence[Any]) -> Any:
        location = getattr(self, "_devshim_location", None)
        if location is None:
            return original(self, device, token, args)
        name = location.device
        running = set(_calls)
        if location.follows and len(running) == 1:
            name = running.pop()
        if is_simulated_gpu(name):
            device, args = _full_name(name), [_copy_to(x, _full_name(name)) for x in args]
        local = context.context()._thread_local_data
        before = local.device_name
        try:
            local.device_name = before if location.scope is None else location.scope
            return original(self, device, token, args)
        finally:
            local.device_name = before

    return call


def _full_name(name: str) -> str:
    """Return the name of a device with its process, as the tensors on it have it."""
    merged = tf.DeviceSpec.from_string(CLUSTER.here).make_merged_spec(tf.DeviceSpec.from_string(name))
    return str(merged.to_string())


def _copy_to(x: Any, device: str) -> Any:
    """Return a tensor on a simulated GPU, with the same memory."""
    result = x._copy_to_device(device)
    hooks.count_results(result)
    return result
