"""The devices that the operators of a graph show to a program, and those that TensorFlow's C++ code has for them.

A graph that becomes a function has the names of logical CPUs, which are shown as GPUs. A graph for sessions has the
program's names until a session runs it (`graph_devices`), and gets them back when the simulation ends.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

import tensorflow as tf
from tensorflow.python.client import pywrap_tf_session

from devshim_backends._tensorflow.simulation.native_names.names import logical_name, shown_name

__all__ = [
    "hide_devices",
    "needs_logical_names",
    "requested_device",
    "restore_graphs",
    "set_device",
    "set_program_device",
]

_RAW_DEVICE = tf.Operation.device.__get__
_SET_RAW = pywrap_tf_session.PyOperation._set_device_from_string
_CHANGED: WeakSet[Any] = WeakSet()
"""The graphs with other devices in C++ than the program has requested."""


def needs_logical_names(graph: Any) -> bool:
    """Return True if the graph becomes a function, so that its operators must have the names of logical CPUs."""
    return bool(graph.building_function)


def requested_device(op: Any) -> str:
    """Return the device that an operator shows to the program: the one that it has set, also if C++ has another."""
    found = getattr(op, "_devshim_requested", None)
    if found is not None:
        return str(found)
    name = _RAW_DEVICE(op)
    return shown_name(name) if needs_logical_names(op.graph) else name


def set_program_device(op: Any, name: str) -> None:
    """Set the device that the program requests."""
    op._devshim_requested = None
    _SET_RAW(op, logical_name(name) if needs_logical_names(op.graph) else name)


def set_device(op: Any, name: str) -> None:
    """Set the device in the C++ graph only."""
    if _RAW_DEVICE(op) != name:
        op._devshim_requested = requested_device(op)
        _CHANGED.add(op.graph)
        _SET_RAW(op, name)


def restore_graphs() -> None:
    """Set the devices that the program has requested in the C++ graphs."""
    for graph in list(_CHANGED):
        with graph._lock:
            for op in graph.get_operations():
                requested = getattr(op, "_devshim_requested", None)
                if requested is not None:
                    op._devshim_requested = None
                    _SET_RAW(op, requested)
            graph._devshim_devices = None  # of `sessions`, which places the operators again
    _CHANGED.clear()


def hide_devices(graph: Any, definition: Any) -> None:
    """Change the definition of a graph to the devices that the program has requested."""
    for node in definition.node:
        if node.device:
            node.device = requested_device(graph.get_operation_by_name(node.name))
    for function in definition.library.function:
        for node in function.node_def:
            if node.device:
                node.device = shown_name(node.device)
