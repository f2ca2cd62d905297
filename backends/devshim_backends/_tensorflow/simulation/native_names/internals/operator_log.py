"""The log of eager operators and their devices, as ``tf.debugging.set_log_device_placement`` lets TensorFlow write it.

TensorFlow's own log is written in C++ and would name logical CPUs. This one is written after an operator has run, with
what TensorFlow's C++ code runs before it: ``_EagerConst`` for each number, list or array among its inputs, except
numbers that it has kept, and ``ReadVariableOp`` for each variable.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from devshim_backends._tensorflow.internals.locations import EAGER
from devshim_backends._tensorflow.simulation.native_names.internals.clusters import CLUSTER
from devshim_backends._tensorflow.simulation.native_names.names import shown_name

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["OperatorLog"]


class OperatorLog:
    """What a program has enabled with ``tf.debugging.set_log_device_placement(True)``."""

    def __init__(self) -> None:
        self._kept: set[tuple[Any, ...]] = set()

    def write(self, op: str | bytes, inputs: Sequence[Any], result: Any, device: str) -> None:
        """Write a line for an operator, and before it one for each constant and variable that it read.

        Args:
            op: The operator's name.
            inputs: Its inputs; attributes after them are ignored.
            result: Its results.
            device: The full name of the scope's device; "" if there is none.
        """
        name = op.decode() if isinstance(op, bytes) else op
        where = _device_of(inputs, result) or shown_name(device or f"{CLUSTER.here}/device:CPU:0")
        definition = op_def_registry.get(name)
        for about, value in zip(definition.input_arg if definition else (), inputs, strict=False):
            is_list = about.number_attr or about.type_list_attr
            for each in value if is_list and isinstance(value, (list, tuple)) else [value]:
                self._write_input(each, where)
        _print(name, where)

    def write_constant(self, value: Any, result: Any, device: str) -> None:
        """Write a line for a constant, unless TensorFlow has kept an equal number; ``device`` is as for `write`."""
        if value is not result:
            self._write_input(value, shown_name(device) or result.device, result.dtype)

    def _write_input(self, value: Any, where: str, dtype: Any = None) -> None:
        if isinstance(value, tf.Variable):
            _print("ReadVariableOp", value.device)
        elif value is not None and not isinstance(value, tf.Tensor):
            key = (type(value), value, dtype, where) if isinstance(value, (bool, int, float, complex)) else None
            if key is None or key not in self._kept:
                _print("_EagerConst", where)
            if key is not None:
                self._kept.add(key)


def _device_of(inputs: Sequence[Any], result: Any) -> str | None:
    """Return the device on which an operator ran: that of its result, or of the variable to which it wrote."""
    first = result[0] if isinstance(result, list) and result else result
    if isinstance(first, EAGER):
        return str(first.device)
    handle = inputs[0] if inputs else None
    return str(handle.device) if isinstance(handle, EAGER) and handle.dtype == tf.resource else None


def _print(name: str, where: str) -> None:
    print(f"Executing op {name} in device {where}", file=sys.stderr)
