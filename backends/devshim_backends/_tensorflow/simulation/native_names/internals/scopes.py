"""The places in which Python code writes or reads a device's name: scopes, tensors, graphs, and what is copied.

* ``Context.device`` and ``Graph.device`` open all scopes; `refused` wraps them while GPUs are simulated.
* A scope that the program opened by TensorFlow's name has TensorFlow's own rule: inputs are copied to its device. In
  the scopes of devshim (`ds.on`), which pass a `StrictDeviceSpec`, mixed devices are still refused.
* An operator in a graph can also get its device from a function, or from an imported graph. Each of them sets it
  through ``Operation._set_device_from_string``, or is imported in C++; the graph to import is translated before. A
  graph for sessions keeps the program's names (`graph_names`).
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

from tensorflow.python.distribute import device_util
from tensorflow.python.eager import context
from tensorflow.python.framework import importer, ops

from devshim_backends._tensorflow.devices import StrictDeviceSpec
from devshim_backends._tensorflow.internals.locations import EAGER, RAW_BACKING_DEVICE, RAW_DEVICE
from devshim_backends._tensorflow.simulation.device_rules import set_policy
from devshim_backends._tensorflow.simulation.native_names import refused
from devshim_backends._tensorflow.simulation.native_names.internals.graph_names import (
    needs_logical_names,
    requested_device,
    set_program_device,
)
from devshim_backends._tensorflow.simulation.native_names.internals.soft_placement import resolve
from devshim_backends._tensorflow.simulation.native_names.names import (
    logical_name,
    native_text,
    refuse_second_cpu,
    shown_name,
    shown_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from devshim.simulation.patching import Patches
    from devshim_backends._tensorflow.simulation.simulate import TensorflowSimulation

__all__ = ["SCOPE", "install"]


_OPS = ops.device_v2.__code__.co_filename


class _State(threading.local):
    """The state of a thread.

    Attributes:
        strict: True in a scope of devshim: operators refuse tensors on other devices.
        policy: The thread's policy outside the scopes of devshim, and in them.
        constants_move: True while a constant that was created without a scope does not decide about the device.
    """

    strict = False
    policy: Any = None
    constants_move = False


SCOPE = _State()
_backend: TensorflowSimulation


class _Scope:
    """A scope of TensorFlow, and whose rule for mixed devices applies in it: devshim's if it is strict."""

    __slots__ = ("_before", "_inner", "_strict")

    def __init__(self, inner: Any, strict: bool) -> None:
        self._inner, self._strict, self._before = inner, strict, False

    def __enter__(self) -> Any:
        entered = self._inner.__enter__()
        self._before = SCOPE.strict
        _set_strict(self._strict)
        return entered

    def __exit__(self, *failure: Any) -> Any:
        _set_strict(self._before)
        return self._inner.__exit__(*failure)


def _set_strict(strict: bool) -> None:
    """Give this thread devshim's policy, or again the one that it has outside the scopes of devshim."""
    if strict == SCOPE.strict:
        return
    owner = context.context()
    owner.ensure_initialized()
    if strict:
        SCOPE.policy = owner.device_policy
    if _backend.native_names:  # it may have been switched off in the scope
        set_policy(context.DEVICE_PLACEMENT_EXPLICIT if strict else SCOPE.policy)
    SCOPE.strict = strict


def _open_scope(original: Callable[..., Any], owner: Any, name: Any) -> Any:
    """Open a scope; replaces `refused.open_scope`, which refuses the names of GPUs."""
    text = native_text(name)
    if text is None:
        return original(owner, name) if isinstance(owner, ops.Graph) else _Scope(original(owner, name), strict=False)
    if _is_opened_by_tf_device():  # ops.init_scope opens the scopes around it again, with TensorFlow's own names
        refuse_second_cpu(text)
    if isinstance(owner, ops.Graph) and not needs_logical_names(owner):
        return original(owner, name)
    opened = original(owner, logical_name(resolve(_backend, owner, text)))
    if isinstance(owner, ops.Graph):
        return opened
    return _Scope(opened, strict=isinstance(name, StrictDeviceSpec))


def _is_opened_by_tf_device() -> bool:
    """Return True if a scope is opened by `tf.device`, which programs call."""
    frame: FrameType | None = sys._getframe(2)
    for _ in range(4):  # refused, context.device, and in graphs a context manager
        frame = frame.f_back if frame is not None else None
        if frame is not None and frame.f_code.co_name in ("device", "combined") and frame.f_code.co_filename == _OPS:
            return True
    return False


def install(patches: Patches, backend: TensorflowSimulation) -> None:
    """Translate the names of devices in Python code."""
    global _backend
    _backend = backend
    patches.replace(refused, "open_scope", _open_scope)
    for name, read in (("device", RAW_DEVICE), ("backing_device", RAW_BACKING_DEVICE)):
        patches.replace(EAGER, name, property(_wrap_name_reader(read)))
    summarize = EAGER._summarize_value
    patches.replace(EAGER, "_summarize_value", lambda x: shown_text(summarize(x)))  # of a resource
    copy = EAGER._copy_to_device
    patches.replace(EAGER, "_copy_to_device", lambda x, device_name: copy(x, logical_name(device_name)))
    _install_in_graphs(patches)
    current = device_util.current
    patches.replace(device_util, "current", lambda: shown_name(current()))


def _install_in_graphs(patches: Patches) -> None:
    patches.replace(ops.Operation, "device", property(requested_device))
    patches.replace(ops.SymbolicTensor, "device", property(lambda x: requested_device(x.op)))
    patches.replace(ops.Operation, "node_def", property(_wrap_node(ops.Operation.node_def.fget)))
    patches.replace(ops.Operation, "_set_device_from_string", set_program_device)
    read_graph = importer._ProcessGraphDefParam

    def read_named_graph(graph_def: Any) -> Any:
        return _translate_graph(read_graph(graph_def))

    patches.replace(importer, "_ProcessGraphDefParam", read_named_graph)


def _wrap_node(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that reads an operator's definition, and shows the device that the program requested."""

    def read_node(op: Any) -> Any:
        node = read(op)
        node.device = requested_device(op)
        return node

    return read_node


def _wrap_name_reader(read: Callable[[Any], str]) -> Callable[[Any], str]:
    """Return a function that reads a device's name, and shows the GPU."""
    return lambda x: shown_name(read(x))


def _translate_graph(graph: Any) -> Any:
    """Return a graph to import, with the names of the logical CPUs; the one that was given is not changed.

    A graph for sessions keeps the program's names, but its functions do not.
    """
    is_function = needs_logical_names(ops.get_default_graph())
    if not any("GPU" in each.device.upper() for each in _nodes(graph, is_function)):
        return graph
    result = type(graph)()
    result.CopyFrom(graph)
    for node in _nodes(result, is_function):
        if node.device:
            node.device = logical_name(node.device)
    return result


def _nodes(graph: Any, is_function: bool) -> Any:
    if is_function:
        yield from graph.node
    for function in graph.library.function:
        yield from function.node_def
