"""The memory of TensorFlow tensors and variables on simulated GPUs, and how it is counted.

Requirements of this module:

* A tensor counts from its creation to its deletion, by the memory block that it uses (see `storage`).
* A variable's value counts as well, even if no tensor uses it. An operator that writes to a variable writes in place,
  or to new memory if a tensor uses the old memory, or makes the variable use a tensor's memory. devshim looks up which:
  immediately if a tensor is involved, otherwise when the memory is asked for (`Variable.stale`).
* What the garbage collector runs during counting is not counted, because the lock may be held.
* Ctrl-C cannot leave a thread in the counting state: a lock in C marks the state, and `with` acquires and releases it
  without running Python code.

Memory without a Python tensor is not seen: what operators and compiled functions use while they run, TensorFlow's cache
of Python numbers, and lists of tensors inside a variant. Strings and handles are also in host memory on real GPUs, so
they do not count.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from ctypes import c_void_p
from typing import Any
from weakref import ref

import numpy as np
import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import context
from tensorflow.python.framework import ops

from devshim.devices.dtypes import DTYPES
from devshim.errors import DevshimError
from devshim_backends._tensorflow.failures import FAILURES
from devshim_backends._tensorflow.internals.locations import RAW_DEVICE
from devshim_backends._tensorflow.simulation.storage import (
    GONE,
    LOCK,
    NO_ADDRESS,
    MemoryBlock,
    TensorflowSimulatedDevice,
    TensorRef,
    release_gone,
)

__all__ = ["BUFFERED", "LOCAL", "UNCOUNTED", "VARIABLES", "Variable", "count_tensor", "memory_view", "update_variables"]

UNCOUNTED = frozenset(dtype.as_datatype_enum for dtype in (tf.string, tf.resource, tf.variant))
"""Dtypes whose tensors do not contain numbers."""

BUFFERED = frozenset(tf.as_dtype(name).as_datatype_enum for name in DTYPES if name != "bfloat16")
"""Dtypes that the buffer protocol supports. Others fail, and under a guard the error does not tell that."""

_EXECUTE = pywrap_tfe.TFE_Py_Execute  # TensorFlow's original: results are not counted, and have no gradient
_INT32 = tf.int32.as_datatype_enum
_word = c_void_p.from_address  # reads the pointer at an address
_HEADER = object.__basicsize__
"""The offset of the address of its memory in a NumPy array, as extensions in C read it; ``ctypes.data`` takes 1 us."""


class _Local(threading.local):
    """The state of a thread.

    Attributes:
        intermediate: Held while operators' results do not count, because only the last result will.
        counting: Held while the thread counts.
        epoch: The number of the simulation that the thread has seen last.
    """

    intermediate: Any
    counting: Any
    epoch = 0

    def __init__(self) -> None:
        self.intermediate, self.counting = threading.RLock(), threading.RLock()

    def is_intermediate(self) -> bool:
        """Return True if results of operators do not count now."""
        return self.intermediate._is_owned()  # type: ignore[no-any-return]

    def is_counting(self) -> bool:
        """Return True if this thread is counting."""
        return self.counting._is_owned()  # type: ignore[no-any-return]


LOCAL = _Local()


# ---------------------------------------------------------------------------------------------------- tensors
def count_tensor(tensor: Any, gpu: TensorflowSimulatedDevice, known: bool = False, last: bool = False) -> None:
    """Count a tensor on a simulated GPU, until the tensor is deleted.

    Args:
        tensor: An eager tensor.
        gpu: Its simulated GPU.
        known: True if the variables that share its memory are known to share it.
        last: True if it is the last result of operators that ran with ``intermediate`` held, which counts.

    Raises:
        OutOfMemoryError: The tensor does not fit.
        DeviceFailedError: The device has vanished.
    """
    if (LOCAL.is_intermediate() and not last) or LOCAL.is_counting() or tensor._datatype_enum() in UNCOUNTED:
        return
    if gpu.group.dtypes_lacking and tensor.dtype.name in gpu.group.dtypes_lacking:
        gpu.group.refuse_dtype(gpu.device, tensor.dtype.name)
    with LOCAL.counting:
        start, end = _address_range(tensor)
        if start == end:
            return
        tensor_ref = TensorRef(tensor, GONE.append)
        with LOCK:
            release_gone()
            block = gpu.block_at(start)
            if gpu.certainly_fits(end - start) if block is None else known or block.tensors:
                return gpu.add_to(block, start, end).add_tensor(tensor_ref)
            owners = [] if block is None else [VARIABLES.get(key) for key in list(block.variables)]
        for variable in owners:  # no tensor uses the block, so the variables may have left it
            if variable is not None:
                variable.update_block()
        if block is None:
            update_variables(gpu)
        del block, owners  # otherwise they would still count below
        with LOCK:
            release_gone()
            gpu.add(start, end).add_tensor(tensor_ref)


def _address_range(tensor: Any) -> tuple[int, int]:
    """Return the addresses of a tensor's first byte and of the byte after its last."""
    array = memory_view(tensor)
    start = _word(id(array) + _HEADER).value or 0
    return start, start + array.nbytes


def memory_view(tensor: Any) -> np.ndarray:
    """Return an array over an eager tensor's own memory, with one dimension for a 0-d tensor."""
    array = tensor._numpy_internal()  # the public `numpy` copies
    if isinstance(array, np.ndarray):
        return array
    if tensor._datatype_enum() in BUFFERED:  # for 0-d tensors, `_numpy_internal` returns a number
        return np.asarray(memoryview(tensor))
    shape = ops.EagerTensor([1], "/device:CPU:0", _INT32)
    types = ("T", tensor._datatype_enum(), "Tshape", _INT32)
    call = context.context()._handle, RAW_DEVICE(tensor), "Reshape", [tensor, shape], types, 1
    return _execute(call)._numpy_internal()  # type: ignore[no-any-return]  # TensorFlow is Any


def _execute(call: tuple[Any, ...]) -> Any:
    """Return an operator's first result, without this thread's device policy, which may refuse shapes and handles."""
    handle = call[0]
    policy = pywrap_tfe.TFE_ContextGetDevicePlacementPolicy(handle)
    try:  # it includes both calls, so that Ctrl-C cannot come between a call in C and the block that undoes it
        pywrap_tfe.TFE_ContextSetThreadLocalDevicePlacementPolicy(handle, context.DEVICE_PLACEMENT_SILENT)
        return _EXECUTE(*call)[0]
    finally:
        pywrap_tfe.TFE_ContextSetThreadLocalDevicePlacementPolicy(handle, policy)


# ---------------------------------------------------------------------------------------------------- variables
class _Handle(ref):  # type: ignore[type-arg]  # generic for the type checker only
    """A weak reference to a variable's handle, with the variable's record."""

    __slots__ = ("variable",)

    variable: Variable

    def release(self) -> None:
        """Record that the variable was deleted."""
        variable: Variable | None = getattr(self, "variable", None)  # None if an interrupt came before it was set
        if variable is None:
            return
        variable.release()
        if VARIABLES.get(variable.key) is variable:
            del VARIABLES[variable.key]


class Variable:
    """The record of a variable on a simulated GPU.

    Attributes:
        handle: A weak reference to its handle, which lives as long as the variable.
        key: The handle's address.
        gpu: The variable's simulated GPU.
        block: The block that contains its value, or None before it has one.
        stale: True if its value may have moved since the last look-up.
    """

    __slots__ = ("_dtype", "block", "gpu", "handle", "key", "stale")

    def __init__(self, handle: Any, gpu: TensorflowSimulatedDevice, dtype: int) -> None:
        self.handle, self.key = _Handle(handle, GONE.append), id(handle)
        self.handle.variable = self
        self.gpu, self._dtype = gpu, dtype
        self.block: MemoryBlock | None = None
        self.stale = False
        VARIABLES[self.key] = self

    def release(self) -> None:
        """Record that the block of its value is unknown. The caller holds the lock."""
        block, self.block = self.block, None
        if block is not None:
            block.variables.discard(self.key)

    def on_write(self) -> None:
        """Record that an operator may have written to the variable; raises as `count_tensor` does."""
        if LOCAL.is_counting():
            self.stale = True
        elif self.block is None or self.block.tensors:
            self.update_block()
        else:
            self.stale = True

    def on_read(self, tensor: Any) -> None:
        """Count a tensor that an operator has just read from the variable; raises as `count_tensor` does."""
        if LOCAL.is_intermediate() or LOCAL.is_counting():
            return
        with LOCAL.counting:  # otherwise a guard would report it as a read by the user
            start, block = _address_range(tensor)[0], self.block
        if block is None or (not block.start <= start < block.end and block.start != NO_ADDRESS):
            self.update_block()
        count_tensor(tensor, self.gpu, known=True)

    def update_block(self) -> None:
        """Look up the block of the value, and count it; raises as `count_tensor` does."""
        with LOCAL.counting:
            first = self._value()
            if first is None:
                return self._set_block(None)
            span, block = _address_range(first), self.block
            if block is not None and (block.start <= span[0] < block.end or block.start == NO_ADDRESS):
                self.stale = False
                return None
            again = self._value()
            # After sparse updates TensorFlow copies at every read, so the memory of the value itself stays unknown.
            return self._set_block(span, own=again is None or _address_range(again) != span)

    def _value(self) -> Any:
        """Return a tensor that uses the variable's value, or None if it has none."""
        handle = self.handle()
        if handle is None:
            return None
        try:
            call = context.context()._handle, RAW_DEVICE(handle), "ReadVariableOp", [handle], ("dtype", self._dtype), 1
            return _execute(call)
        except FAILURES:
            return None

    def _set_block(self, span: tuple[int, int] | None, own: bool = False) -> None:
        with LOCK:
            release_gone()
            self.stale = True  # if Ctrl-C comes before the end, the next caller looks again
            self.release()
            if span is not None and span[0] != span[1]:
                self.block = self.gpu.add_without_address(span[1] - span[0]) if own else self.gpu.add(*span)
                self.block.variables.add(self.key)
            self.stale = False


VARIABLES: dict[int, Variable] = {}
"""Maps the `id` of a handle to the record of its variable, for all variables on simulated GPUs."""


def update_variables(gpu: TensorflowSimulatedDevice) -> None:
    """Look up all variables of a simulated GPU that may have moved, and handle objects that are gone."""
    with LOCAL.counting:
        for variable in list(VARIABLES.values()):
            if variable.gpu is gpu and variable.stale:
                with suppress(DevshimError):  # the value is already there; its writer was, or will be, notified
                    variable.update_block()
        with LOCK:
            release_gone()
