"""The shape of a tensor that TensorFlow may not know: of a variable whose values have several shapes, or when compiled.

``tf.Variable(x, shape=tf.TensorShape(None))`` accepts values of any shape. What matters to devshim is the current one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf

from devshim.errors import TracingError

if TYPE_CHECKING:
    from devshim.contract.backend import Tensor

__all__ = ["shape_of"]


def shape_of(x: Tensor) -> tuple[int, ...]:
    """Return the shape of any tensor that is not a plain eager one; unknown lengths are None."""
    shape = x.shape
    if isinstance(shape, tuple):  # of a Keras variable
        return shape
    found = None if shape.rank is None else tuple(shape)
    if found is not None and None not in found:
        return found
    if isinstance(x, tf.Variable) and tf.executing_eagerly():
        return tuple(x.read_value().shape)
    if found is not None:
        return found
    msg = "TensorFlow is compiling a function for tensors with any number of axes"
    raise TracingError(msg, "give tf.function an input_signature that says how many axes there are")
