"""Errors that are TensorFlow's and devshim's in one: whoever catches either has them.

Keras makes such an error anew, of the same class and with TensorFlow's arguments, to add a layer's name to its text.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.eager import core

from devshim.errors import DeviceMismatchError, DevshimError, OutOfMemoryError, joined

__all__ = ["FAILURES", "FullCardError", "MixedDevicesError"]

FAILURES: tuple[type[Exception], ...] = (core._NotOkStatusException, tf.errors.OpError)
"""What an operator's failure comes as: the fast path's status, and the slow path's error."""


@joined
class FullCardError(OutOfMemoryError, tf.errors.ResourceExhaustedError):  # type: ignore[misc]  # TensorFlow is Any
    """A simulated card is full."""

    def __init__(self, *args: Any) -> None:
        _begin(self, tf.errors.ResourceExhaustedError, args)


@joined
class MixedDevicesError(DeviceMismatchError, tf.errors.InvalidArgumentError):  # type: ignore[misc]  # TensorFlow is Any
    """Tensors on different simulated cards met in one operator."""

    def __init__(self, *args: Any) -> None:
        _begin(self, tf.errors.InvalidArgumentError, args)


def _begin(error: Any, theirs: Any, args: tuple[Any, ...]) -> None:
    """Take ``(problem, hint)``, or TensorFlow's ``(node, operator, message, ...)``."""
    if len(args) > 2:
        problem, _, hint = args[2].partition("\n\nHint: ")
        node, operator = args[:2]
    else:
        problem, hint, node, operator = args[0], args[1] if len(args) > 1 else None, None, None
    theirs.__init__(error, node, operator, problem)
    DevshimError.__init__(error, problem, hint or None)
