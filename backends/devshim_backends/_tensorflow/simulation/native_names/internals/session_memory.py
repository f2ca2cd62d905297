"""The memory of a session's variables and kept tensors on simulated GPUs, which exist in C++ only.

A variable takes memory when a session first runs an operator that assigns its initial value, and keeps it until the
session is closed. A tensor with a handle (``get_session_handle``) takes memory until its handle is deleted, or the
session closed. With ``per_process_gpu_memory_fraction``, both must fit into that part of a GPU. What other operators
allocate is not counted, as in a ``tf.function``.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from devshim.errors import messages
from devshim_backends._tensorflow.simulation.native_names.internals.session_devices import memory_limit
from devshim_backends._tensorflow.simulation.native_names.names import index_of_gpu, shown_name
from devshim_backends._tensorflow.simulation.storage import LOCK, SIMULATED, MemoryBlock, release_gone

if TYPE_CHECKING:
    from collections.abc import Iterable

    from devshim_backends._tensorflow.simulation.native_names.internals.graph_devices import GraphDevices

__all__ = ["SessionMemory"]

_ASSIGNMENTS = frozenset({"Assign", "AssignVariableOp"})
_VARIABLES = frozenset({"Variable", "VariableV2", "VarHandleOp"})


class SessionMemory:
    """The memory of a session's variables and kept tensors; it is freed with this object.

    Args:
        fraction: The part of each GPU that the session may use; 0 for all of it.
    """

    def __init__(self, fraction: float) -> None:
        self._fraction = fraction
        self._used: Counter[int] = Counter()
        self._run: set[Any] = set()
        self._blocks: dict[Any, tuple[int, int, MemoryBlock]] = {}
        """A variable, or the handle of a tensor -> the index of its GPU, its bytes and its block."""

    def add(self, ops: Iterable[Any], devices: GraphDevices) -> None:
        """Count the variables to which operators, or those before them, assign a value for the first time.

        Args:
            ops: The operators that the session runs.
            devices: The devices of the operators of its graph.

        Raises:
            OutOfMemoryError: A variable does not fit.
        """
        waiting, found = [op for op in ops if op not in self._run], set()
        while waiting:
            op = waiting.pop()
            if op not in found:
                found.add(op)
                before = (*(value.op for value in op.inputs), *op.control_inputs)
                waiting += [each for each in before if each not in self._run]
        for op in found:
            if op.type in _ASSIGNMENTS and op.inputs[0].op.type in _VARIABLES:
                self._add(op.inputs[0].op, devices)
        self._run |= found

    def _add(self, variable: Any, devices: GraphDevices) -> None:
        elements = tf.TensorShape(variable.get_attr("shape")).num_elements()
        nbytes = (elements or 0) * tf.as_dtype(variable.get_attr("dtype")).size
        self._add_block(variable, devices.named_device(variable), nbytes)

    def keep(self, handle: str, nbytes: int) -> None:
        """Count a tensor that the session keeps; its handle ends with the name of its device.

        Raises:
            OutOfMemoryError: The tensor does not fit.
        """
        self._add_block(handle, handle.rpartition(";")[2], nbytes)

    def delete(self, handle: str) -> None:
        """Free the memory of a kept tensor."""
        index, nbytes, _ = self._blocks.pop(handle, (0, 0, None))
        self._used[index] -= nbytes

    def _add_block(self, key: Any, device: str, nbytes: int) -> None:
        index = index_of_gpu(shown_name(device))
        if index is None or not nbytes or key in self._blocks:
            return
        with LOCK:
            release_gone()
            self._require_free(index, nbytes)
            self._blocks[key] = index, nbytes, SIMULATED[index].add_without_address(nbytes)
            self._used[index] += nbytes

    def _require_free(self, index: int, nbytes: int) -> None:
        """Raise an error if more bytes do not fit into the part of the GPU that the session may use."""
        if not self._fraction:
            return
        gpu = SIMULATED[index]
        free = memory_limit(gpu.limit, self._fraction) - self._used[index]
        if nbytes > free:
            raise messages.full_device(gpu.device, nbytes, free, gpu.error_class)
