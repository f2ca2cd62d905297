"""Errors that are TensorFlow's and devshim's in one: whoever catches either has them.

Keras makes such an error again, of the same class and with TensorFlow's arguments, to add a layer's name to its text:
so TensorFlow's ``message`` is the whole text, with the hint.
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
    node, operator, *text = args[:3] if len(args) > 2 else (None, None, *args)
    DevshimError.__init__(error, *text)
    message = error.args[0]
    theirs.__init__(error, node, operator, message)
    error.args = (message,)  # TensorFlow's constructor has emptied them
