"""Telling simulated cards what TensorFlow's tensors and variables take.

Requirements this module answers:

* A tensor is counted from its making until it is gone, by the block of memory it shows (`.cards`).
* So is the value of a variable, which no tensor need show.  An operator that writes to a variable writes in place, or
  to new memory where a tensor shows the old, or lets the variable have the memory of a tensor: what it did is looked
  up, at once where a tensor is concerned, else when somebody asks for the card's memory (`Variable.stale`).
* What the garbage collector has run in the middle of counting is not counted: the lock may be held.
* Ctrl-C leaves no thread in the middle of counting: what says so is a lock in C, which `with` takes and gives back
  without running Python.

What never is a tensor of Python's is not seen: what operators and compiled functions use while they run, TensorFlow's
own store of Python's numbers, and lists of tensors inside a variant.  Strings and handles are the host's on real
cards, too, and take nothing.
"""

from __future__ import annotations

import threading
from contextlib import suppress
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
from devshim_backends._tensorflow.simulation.devices import APART, GONE, LOCK, Block, Held, TensorflowCard, settle

__all__ = ["BUFFERED", "LOCAL", "UNCOUNTED", "VARIABLES", "Variable", "count", "over", "refresh"]

UNCOUNTED = frozenset(dtype.as_datatype_enum for dtype in (tf.string, tf.resource, tf.variant))
"""Dtypes whose tensors hold no numbers."""

BUFFERED = frozenset(tf.as_dtype(name).as_datatype_enum for name in DTYPES if name != "bfloat16")
"""Dtypes that Python's buffers know.  Asked for others, they fail, and under a guard without an error that says so."""

_EXECUTE = pywrap_tfe.TFE_Py_Execute  # as TensorFlow made it: what is read here is neither counted nor differentiated
_INT32 = tf.int32.as_datatype_enum


class _Local(threading.local):
    """What a thread is about.

    Attributes:
        aside: Held while what operators make is not to be counted, because only their last result is.
        counting: Held in the middle of counting.
        epoch: Which simulation it has met last.
    """

    aside: Any
    counting: Any
    epoch = 0

    def __init__(self) -> None:
        self.aside, self.counting = threading.RLock(), threading.RLock()

    def is_aside(self) -> bool:
        """True if what operators make now is not to be counted."""
        return self.aside._is_owned()  # type: ignore[no-any-return]

    def is_counting(self) -> bool:
        """True if this thread is in the middle of counting."""
        return self.counting._is_owned()  # type: ignore[no-any-return]


LOCAL = _Local()


# ---------------------------------------------------------------------------------------------------- tensors
def count(tensor: Any, card: TensorflowCard, known: bool = False, last: bool = False) -> None:
    """Count a tensor on a card, until it is gone.

    Args:
        tensor: An eager tensor.
        card: Where it is.
        known: Whether the variables that share its memory are known to do so.
        last: Whether it is what operators were to make aside, and so is counted.

    Raises:
        FullCardError: It does not fit.
        DeviceFailedError: The card has vanished.
    """
    if (LOCAL.is_aside() and not last) or LOCAL.is_counting() or tensor._datatype_enum() in UNCOUNTED:
        return
    with LOCAL.counting:
        start, end = _span(tensor)
        if start == end:
            return
        held = Held(tensor, GONE.append)
        with LOCK:
            settle()
            block = card.at(start)
            if card.has_room(end - start) if block is None else known or block.tensors:
                return card.enter(start, end).show(held)
            owners = [] if block is None else [VARIABLES.get(key) for key in list(block.variables)]
        for variable in owners:  # no tensor vouches for the block: the variable may have left it
            if variable is not None:
                variable.look()
        if block is None:
            refresh(card)
        del block, owners  # else they count while the next finds a full card
        with LOCK:
            settle()
            card.enter(start, end).show(held)


def _span(tensor: Any) -> tuple[int, int]:
    """The addresses of a tensor's first byte and of the one behind its last."""
    array = over(tensor)
    start: int = array.ctypes.data
    return start, start + array.nbytes


def over(tensor: Any) -> np.ndarray:
    """An array over an eager tensor's own memory; of one axis where the tensor has none."""
    array = tensor._numpy_internal()  # the public `numpy` copies
    if isinstance(array, np.ndarray):
        return array
    if tensor._datatype_enum() in BUFFERED:  # 0-d tensors come as numbers
        return np.asarray(memoryview(tensor))
    shape = ops.EagerTensor([1], "/device:CPU:0", _INT32)
    types = ("T", tensor._datatype_enum(), "Tshape", _INT32)
    asked = context.context()._handle, tensor.device, "Reshape", [tensor, shape], types, 1
    return _executed(asked)._numpy_internal()  # type: ignore[no-any-return]  # TensorFlow is Any


def _executed(asked: tuple[Any, ...]) -> Any:
    """Return an operator's first result, whatever this thread's device policy says of shapes and handles."""
    handle = asked[0]
    policy = pywrap_tfe.TFE_ContextGetDevicePlacementPolicy(handle)
    try:  # around both: no Ctrl-C comes between a call in C and the block that undoes it
        pywrap_tfe.TFE_ContextSetThreadLocalDevicePlacementPolicy(handle, context.DEVICE_PLACEMENT_SILENT)
        return _EXECUTE(*asked)[0]
    finally:
        pywrap_tfe.TFE_ContextSetThreadLocalDevicePlacementPolicy(handle, policy)


# ---------------------------------------------------------------------------------------------------- variables
class _Handle(ref):  # type: ignore[type-arg]  # generic for the type checker only
    """A weak reference to a variable's handle that knows the rest."""

    __slots__ = ("variable",)

    variable: Variable

    def leave(self) -> None:
        """Take note that the variable is gone."""
        variable: Variable | None = getattr(self, "variable", None)  # None: an interrupt came before it had one
        if variable is None:
            return
        variable.leave()
        if VARIABLES.get(variable.key) is variable:
            del VARIABLES[variable.key]


class Variable:
    """What is known of a variable on a card.

    Attributes:
        handle: A weak reference to its handle, which lives as long as it does.
        key: The handle's address.
        card: Where it is.
        block: What holds its value, or None before it has one.
        stale: Whether its value may have moved since it was looked up.
    """

    __slots__ = ("_dtype", "block", "card", "handle", "key", "stale")

    def __init__(self, handle: Any, card: TensorflowCard, dtype: int) -> None:
        self.handle, self.key = _Handle(handle, GONE.append), id(handle)
        self.handle.variable = self
        self.card, self._dtype = card, dtype
        self.block: Block | None = None
        self.stale = False
        VARIABLES[self.key] = self

    def leave(self) -> None:
        """Note, with the lock held, that its value is nowhere that is known."""
        block, self.block = self.block, None
        if block is not None:
            block.variables.discard(self.key)

    def written(self) -> None:
        """Take note of an operator that may have written to it; raises as `count` does."""
        if LOCAL.is_counting():
            self.stale = True
        elif self.block is None or self.block.tensors:
            self.look()
        else:
            self.stale = True

    def read(self, tensor: Any) -> None:
        """Count what an operator has just read from it; raises as `count` does."""
        if LOCAL.is_aside() or LOCAL.is_counting():
            return
        with LOCAL.counting:  # a guard would take it for a read of the user's
            start, block = _span(tensor)[0], self.block
        if block is None or (not block.start <= start < block.end and block.start != APART):
            self.look()
        count(tensor, self.card, known=True)

    def look(self) -> None:
        """Look where its value is, and count that; raises as `count` does."""
        with LOCAL.counting:
            first = self._value()
            if first is None:
                return self._move(None)
            span, block = _span(first), self.block
            if block is not None and (block.start <= span[0] < block.end or block.start == APART):
                self.stale = False
                return None
            again = self._value()
            # After sparse updates TensorFlow copies on every read, and never shows the value's own memory.
            return self._move(span, apart=again is None or _span(again) != span)

    def _value(self) -> Any:
        """A tensor that shows its value; None where it has none."""
        handle = self.handle()
        if handle is None:
            return None
        try:
            asked = context.context()._handle, handle.device, "ReadVariableOp", [handle], ("dtype", self._dtype), 1
            return _executed(asked)
        except FAILURES:
            return None

    def _move(self, span: tuple[int, int] | None, apart: bool = False) -> None:
        with LOCK:
            settle()
            self.stale = True  # should Ctrl-C come before the end, the next who asks looks again
            self.leave()
            if span is not None and span[0] != span[1]:
                self.block = self.card.enter_apart(span[1] - span[0]) if apart else self.card.enter(*span)
                self.block.variables.add(self.key)
            self.stale = False


VARIABLES: dict[int, Variable] = {}
"""Every variable on a simulated card, by its handle's `id`."""


def refresh(card: TensorflowCard) -> None:
    """Look where all variables of a card are that may have moved, and settle what is gone."""
    with LOCAL.counting:
        for variable in list(VARIABLES.values()):
            if variable.card is card and variable.stale:
                with suppress(DevshimError):  # it is there already: whoever wrote it was, or will be, told
                    variable.look()
        with LOCK:
            settle()
