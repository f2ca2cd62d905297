"""Sessions of ``tf.compat.v1``: they have a logical CPU for each simulated GPU, and show it as the GPU.

`graph_devices` places the operators. TensorFlow's log of placements is written in C++ and would name logical CPUs, so
it is written here, with TensorFlow's words. `session_memory` counts variables and kept tensors.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.client import session
from tensorflow.python.eager import context
from tensorflow.python.framework import ops

from devshim_backends._tensorflow.simulation.native_names.internals import session_handles
from devshim_backends._tensorflow.simulation.native_names.internals.graph_devices import GraphDevices
from devshim_backends._tensorflow.simulation.native_names.internals.graph_names import hide_devices
from devshim_backends._tensorflow.simulation.native_names.internals.session_devices import (
    SessionDevices,
    memory_limit,
)
from devshim_backends._tensorflow.simulation.native_names.internals.session_dumps import show_dumps, show_metadata
from devshim_backends._tensorflow.simulation.native_names.internals.session_memory import SessionMemory
from devshim_backends._tensorflow.simulation.native_names.names import index_of_gpu, is_simulated_gpu, shown_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.simulation.patching import Patches
    from devshim_backends._tensorflow.simulation.simulate import TensorflowSimulation

__all__ = ["describe_gpu", "install"]

_PLACED = "_devshim_devices"
"""The attribute of a graph with its `GraphDevices`, and of a session with the names of its devices."""
_SOFT = "_devshim_soft"
"""The attribute of a session that is True if it may take another device than the requested one."""
_devices: SessionDevices
_list_raw: Callable[..., list[Any]]
"""TensorFlow's method that lists the devices of a session, with the names of logical CPUs."""


def install(patches: Patches, backend: TensorflowSimulation) -> None:
    """Let sessions compute on the simulated GPUs."""
    global _devices, _list_raw
    _devices, _list_raw = SessionDevices(backend), session.BaseSession.list_devices
    patches.replace(ops.Graph, "_as_graph_def", _wrap_definition(ops.Graph._as_graph_def))
    if not backend.simulated:
        return
    session_handles.install(patches)
    owner = session.BaseSession
    for name, wrap in (
        ("__init__", _wrap_create),
        ("list_devices", _wrap_list),
        ("_extend_graph", _wrap_extend),
        ("_do_run", _wrap_do_run),
        ("run", _wrap_run),
        ("make_callable", _wrap_make_callable),
        ("close", _wrap_close),
    ):
        patches.replace(owner, name, wrap(getattr(owner, name)))
    patches.replace(owner, "_Callable", _callable_class(owner._Callable))


def _wrap_definition(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement for the method that writes a graph, which the program may store."""

    def as_graph_def(self: Any, *args: Any, **kwargs: Any) -> Any:
        definition, version = original(self, *args, **kwargs)
        if not self.building_function:
            hide_devices(self, definition)
        return definition, version

    return as_graph_def


# ---------------------------------------------------------------------------------------------------- devices
def _wrap_create(original: Callable[..., None]) -> Callable[..., None]:
    def create(self: Any, target: Any = "", graph: Any = None, config: Any = None) -> None:
        self._session = None  # its destructor reads this
        given = context.context().config if config is None else config
        if not isinstance(given, config_pb2.ConfigProto):
            original(self, target, graph, given)  # raises TensorFlow's error
        own = config_pb2.ConfigProto()
        own.CopyFrom(given)
        own.device_count["CPU"] = 1 + _devices.choose(given, is_of_program=config is not None)
        own.log_device_placement = False
        self._devshim_soft = given.allow_soft_placement
        self._devshim_logged = 0 if given.log_device_placement else None
        self._devshim_fraction = 0.0 if target else given.gpu_options.per_process_gpu_memory_fraction
        self._devshim_memory = SessionMemory(self._devshim_fraction) if not target else None
        original(self, target, graph, own)
        if given.log_device_placement and not target:
            _log_mapping(self)

    return create


def describe_gpu(index: int) -> tuple[int, str]:
    """Return the bytes of a simulated GPU, and its description as TensorFlow writes it."""
    return _devices.describe_gpu(index)


def _wrap_list(original: Callable[..., Any]) -> Callable[..., Any]:
    def list_devices(self: Any) -> list[Any]:
        fraction = getattr(self, "_devshim_fraction", 0.0)
        return [_show(each, fraction) for each in original(self)]

    return list_devices


def _names(self: Any) -> tuple[str, ...]:
    """Return TensorFlow's names of the devices of a session."""
    found = getattr(self, _PLACED, None)
    if found is None:
        found = tuple(each.name for each in _list_raw(self))
        setattr(self, _PLACED, found)
    return found


def _show(device: Any, fraction: float) -> Any:
    if not is_simulated_gpu(device.name):
        return device
    name = shown_name(device.name)
    memory, _ = describe_gpu(index_of_gpu(name) or 0)
    return session._DeviceAttributes(name, "GPU", memory_limit(memory, fraction), device._incarnation)


# ---------------------------------------------------------------------------------------------------- placement
def _wrap_extend(original: Callable[..., None]) -> Callable[..., None]:
    def extend(self: Any) -> None:
        if not hasattr(self, _SOFT):  # it was created before GPUs were simulated, and has none
            original(self)
            return
        devices = _place(self)
        original(self)
        if self._devshim_logged is not None:
            _log_placement(self, devices)

    return extend


def _place(self: Any) -> GraphDevices:
    """Return the devices of the operators of a session's graph, after those of new ones are set."""
    graph, key = self._graph, (_names(self), self._devshim_soft)
    with graph._lock:
        known = getattr(graph, _PLACED, None)
        if known is None or known[0] != key:
            known = key, GraphDevices(graph, *key)
            setattr(graph, _PLACED, known)
        known[1].place_new()
    return known[1]


def _wrap_do_run(original: Callable[..., Any]) -> Callable[..., Any]:
    def do_run(self: Any, handle: Any, targets: Any, fetches: Any, feeds: Any, *args: Any) -> Any:
        feeds, memory = session_handles.translate_feeds(feeds), getattr(self, "_devshim_memory", None)
        if memory is None:
            return original(self, handle, targets, fetches, feeds, *args)
        devices = self._do_call(_place, self)  # which adds to errors where an operator was created
        operators = [*targets, *(each.op for each in fetches)]
        memory.add(operators, devices)
        kept = session_handles.kept_tensors(fetches) if handle is None else {}
        results = original(self, handle, targets, [*fetches, *kept.values()], feeds, *args)
        for position, value in zip(kept, results[len(fetches) :], strict=True):
            memory.keep(tf.compat.as_str_any(results[position]), value.nbytes)
        for each in session_handles.deleted_handles(operators, feeds):
            memory.delete(each)
        return results[: len(fetches)]

    return do_run


def _wrap_close(original: Callable[[Any], None]) -> Callable[[Any], None]:
    def close(self: Any) -> None:
        self._devshim_memory = None
        original(self)

    return close


def _log_mapping(self: Any) -> None:
    print("Device mapping:", file=sys.stderr)
    for name in map(shown_name, _names(self)):
        index = index_of_gpu(name)
        if index is not None:
            print(f"{name} -> {describe_gpu(index)[1]}", file=sys.stderr)


def _log_placement(self: Any, devices: GraphDevices) -> None:
    """Write a line for each operator that is new to the session, as TensorFlow does, on both streams."""
    for op, device in devices.devices(self._devshim_logged):
        self._devshim_logged += 1
        for stream in (sys.stdout, sys.stderr):
            print(f"{op.name}: ({op.type}): {device}", file=stream)


def _wrap_run(original: Callable[..., Any]) -> Callable[..., Any]:
    def run(self: Any, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        result = original(self, fetches, feed_dict, options, run_metadata)
        show_metadata(run_metadata)
        if options is not None:
            show_dumps(options)
        return result

    return run


# ---------------------------------------------------------------------------------------------------- callables
def _wrap_make_callable(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement for the method that makes a function of fetches, which calls ``run``."""

    def make_callable(self: Any, fetches: Any, feed_list: Any = None, accept_options: bool = False) -> Any:
        if feed_list is not None:
            return original(self, fetches, feed_list, accept_options)
        original(self, fetches, None, accept_options)  # raises TensorFlow's errors
        call = original(self, fetches, [], accept_options)
        if accept_options or not isinstance(fetches, tf.Tensor):
            return call

        def compute() -> Any:
            result = call()
            is_handle = isinstance(result, session_handles.TensorHandle)
            return result.get_raw_handle().encode() if is_handle else result

        return compute

    return make_callable


def _callable_class(cls: Any) -> Any:
    """Return a subclass of TensorFlow's class for the C++ callables of a session."""

    class DevshimCallable(cls):  # type: ignore[misc]  # TensorFlow is Any
        def __init__(self, of: Any, options: Any) -> None:
            super().__init__(of, options)
            find = of.graph.as_graph_element
            self._devshim_operators = [getattr(x, "op", x) for x in map(find, (*options.target, *options.fetch))]
            self._devshim_handles = [session_handles.is_handle(find(name)) for name in options.feed]

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            memory = getattr(self._session, "_devshim_memory", None)
            if memory is not None:
                memory.add(self._devshim_operators, _place(self._session))
            pairs = zip(args, self._devshim_handles, strict=False)
            given = [session_handles.translate_handle(x) if is_handle else x for x, is_handle in pairs]
            result = super().__call__(*given, *args[len(given) :], **kwargs)
            show_metadata(kwargs.get("run_metadata"))
            return result

    return DevshimCallable
