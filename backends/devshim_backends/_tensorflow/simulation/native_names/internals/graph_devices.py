"""The devices of the operators of a graph that a session of ``tf.compat.v1`` runs.

A graph that a program makes for sessions has the program's names: its operators show ``/device:GPU:1``, or no device.
TensorFlow's C++ code places an operator when a session first sees it. Before that, `place_new` sets the logical CPUs in
the C++ graph; `graph_names.requested_device` still returns the program's name.

TensorFlow would place operators without a device on ``CPU:0``. A machine with GPUs takes ``GPU:0`` for them, so
`place_new` follows the rules of TensorFlow's placer:

* Operators that share a resource or a reference, and those with the attribute ``_class``, are on one device.
* Operators without a kernel for GPUs are on the host (`host_operators`).
* A constant is on the device of the operators that read it, if that is one device; a shape is where its tensor is.
* Others are on ``GPU:0`` of their process. With soft placement, so are those on a device that does not exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.framework import dtypes

from devshim_backends._tensorflow.simulation.native_names.internals.graph_names import requested_device, set_device
from devshim_backends._tensorflow.simulation.native_names.internals.host_operators import runs_on_host_in_graph
from devshim_backends._tensorflow.simulation.native_names.names import shown_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["GraphDevices"]

_OF_INPUT = frozenset({"Shape", "ShapeN", "Size", "Rank"})
"""Operators that TensorFlow places where their input is."""


class GraphDevices:
    """The devices of the operators of a graph in sessions with equal devices.

    Args:
        graph: The graph.
        devices: TensorFlow's names of the session's devices.
        soft: True if the session may take another device than the requested one.
    """

    def __init__(self, graph: Any, devices: Sequence[str], soft: bool) -> None:
        self._graph, self._soft = graph, soft
        self._devices = [tf.DeviceSpec.from_string(each) for each in devices]
        self._version = -1
        self._count = 0
        self._groups: dict[Any, Any] = {}
        self._assigned: dict[Any, str] = {}

    def place_new(self) -> None:
        """Set the devices of the operators that were created since the last call.

        Raises:
            InvalidArgumentError: An operator without a kernel for GPUs is on a GPU, without soft placement.
        """
        version = self._graph.version
        if version == self._version:
            return
        created = self._graph.get_operations()[self._count :]
        for op in created:
            for other in self._colocated(op):
                self._groups[self._first(op)] = self._first(other)
        groups: dict[Any, list[Any]] = {}
        for op in created:
            groups.setdefault(self._first(op), []).append(op)
        for first, members in groups.items():
            self._assign_group(first, members)
        self._count += len(created)
        self._version = version

    def devices(self, start: int) -> Iterator[tuple[Any, str]]:
        """Yield each operator from a position on, and the full name of its device as the program sees it."""
        here = self._devices[0].replace(device_type=None, device_index=None)
        for op in self._graph.get_operations()[start:]:
            found = tf.DeviceSpec.from_string(self.named_device(op) or "/device:CPU:0")
            found = here.make_merged_spec(found.replace(device_index=found.device_index or 0))
            yield op, shown_name(found.to_string())

    def named_device(self, op: Any) -> str:
        """Return TensorFlow's name of an operator's device; "" for the host."""
        found = self._assigned.get(op)
        if found is not None:
            return found
        if op.type in _OF_INPUT and op.inputs:
            return self.named_device(op.inputs[0].op)
        readers = [reader for result in op.outputs for reader in result.consumers()]
        return self.named_device(readers[0]) if readers else ""

    # ---------------------------------------------------------------------- groups
    def _first(self, op: Any) -> Any:
        """Return the operator that represents the group of an operator."""
        while (other := self._groups.get(op, op)) is not op:
            op = other
        return op

    def _colocated(self, op: Any) -> Iterator[Any]:
        """Yield the earlier operators with which an operator must be on one device."""
        for name in op.colocation_groups():
            other = name.decode().partition("@")[2]
            if other != op.name:
                yield self._graph.get_operation_by_name(other)
        for value, dtype in zip(op.inputs, op._input_types, strict=True):
            if dtype == dtypes.resource or dtype._is_ref_dtype:
                yield value.op

    def _assign_group(self, first: Any, members: Sequence[Any]) -> None:
        """Set the devices of the new operators of a group; ``first`` represents the group.

        An operator whose device depends on others' keeps its request in the C++ graph, where TensorFlow decides.
        """
        requested = {op: tf.DeviceSpec.from_string(requested_device(op)) for op in members}
        chosen = {op: self._choose(op, given) for op, given in requested.items() if given.device_type}
        shared = next(iter(chosen.values()), self._assigned.get(first))
        if shared is None and any(map(runs_on_host_in_graph, members)):
            shared = ""
        follows = len(members) == 1 and self._follows_others(members[0])
        for op, given in requested.items():
            if op in chosen:
                set_device(op, chosen[op])
            elif shared is not None or follows:
                set_device(op, str(given.to_string()))
            else:
                chosen[op] = self._default(given)
                set_device(op, chosen[op])
            device = chosen.get(op, shared)
            if device is not None:
                self._assigned[op] = device
                self._assigned.setdefault(first, device)

    def _follows_others(self, op: Any) -> bool:
        """Return True if TensorFlow places an operator with its input, or with the operators that read its result."""
        if op.type in _OF_INPUT and op.inputs:
            return True
        if op.inputs or len(op.outputs) != 1:
            return False
        readers = {requested_device(reader) for reader in op.outputs[0].consumers()}
        return len(readers) == 1 and bool(tf.DeviceSpec.from_string(readers.pop()).device_type)

    # ---------------------------------------------------------------------- devices
    def _choose(self, op: Any, given: Any) -> str:
        """Return the device in the C++ graph for a requested one; a missing one stays, and TensorFlow refuses it."""
        is_unknown = given.device_type not in ("CPU", "GPU")
        if given.device_type != "GPU" and not (is_unknown and self._soft):
            return self._choose_host(op, given)
        if runs_on_host_in_graph(op):
            if not self._soft:
                raise _no_kernel_error(op)
            return str(given.replace(device_type="CPU", device_index=0).to_string())
        found = given.replace(device_type="CPU", device_index=(given.device_index or 0) + 1)
        if self._exists(found) and not is_unknown:
            return str(found.to_string())
        return self._default(given) if self._soft else str(given.to_string())

    def _choose_host(self, op: Any, given: Any) -> str:
        """Return the device for a requested one that is no GPU; a second CPU does not exist."""
        if given.device_type == "CPU" and given.device_index:
            if not self._soft:
                raise self._missing_error(op)
            given = given.replace(device_index=0)
        return str(given.to_string())

    def _default(self, given: Any) -> str:
        """Return the device for an operator that has requested none, or only a process."""
        for index in (1, 0):
            found = given.replace(device_type="CPU", device_index=index)
            if self._exists(found):
                return str(found.to_string())
        return str(given.to_string())  # of a process that TensorFlow does not know: its error names the request

    def _exists(self, given: Any) -> bool:
        fields = ("job", "replica", "task", "device_type", "device_index")
        wanted = {name: value for name in fields if (value := getattr(given, name)) is not None}
        return any(all(getattr(each, name) == value for name, value in wanted.items()) for each in self._devices)

    def _missing_error(self, op: Any) -> tf.errors.InvalidArgumentError:
        """Return TensorFlow's error for a CPU that does not exist; the text ``/device:CPU:1`` would become a GPU."""
        known = ", ".join(shown_name(each.to_string()) for each in self._devices)
        name, requested = op.name, requested_device(op).replace("/device:", "/")
        text = (
            f"Cannot assign a device for operation {name}: {{{{node {name}}}}} was explicitly assigned to {requested} "
            f"but available devices are [ {known} ]. Make sure the device specification refers to a valid device."
        )
        return tf.errors.InvalidArgumentError(op.node_def, op, text)


def _no_kernel_error(op: Any) -> tf.errors.InvalidArgumentError:
    text = (
        f"Cannot assign a device for operation {op.name}: Could not satisfy explicit device specification "
        f"'{requested_device(op)}' because no supported kernel for GPU devices is available."
    )
    return tf.errors.InvalidArgumentError(op.node_def, op, text)
