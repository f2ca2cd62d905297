"""Reductions, and their axes as arrays, which TensorFlow converts to tensors faster than tuples."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from devshim_backends._array_api.manipulation import axes_of, axis_of, need_elements

if TYPE_CHECKING:
    from collections.abc import Callable


def reduced_axes(axis: Any, x: Any, call: str) -> Any:
    """Return the axes of a reduction: one as a number, which TensorFlow keeps as a tensor, and several as an array."""
    count = len(x.shape)
    if type(axis) is int:
        return axis_of(axis, count, call)
    return _as_array(axes_of(axis, count, call))


@cache
def _as_array(axes: tuple[int, ...]) -> np.ndarray:
    """Return an array: TensorFlow converts it to a tensor in a third of the time that it takes for a tuple."""
    return np.array(axes, np.int32)


def mean(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the mean of the elements along some axes."""
    axes = reduced_axes(axis, x, "mean")
    if x.dtype.is_complex and 0 in x.shape:  # TensorFlow's mean of no complex numbers is 0 (2.21)
        real, imag = (tf.reduce_mean(part, axes, keepdims) for part in (tf.math.real(x), tf.math.imag(x)))
        return tf.complex(real, imag)
    return tf.reduce_mean(x, axes, keepdims)


def index_of(call: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``argmax`` or ``argmin`` with the standard's arguments."""

    def find(x: Any, /, *, axis: int | None = None, keepdims: bool = False) -> Any:
        count = len(x.shape)
        if 0 in x.shape:
            need_elements(x.shape, axes_of(axis, count, call), call)
        if axis is None:
            found = fn(tf.reshape(x, [-1]), axis=0)
            return tf.reshape(found, [1] * count) if keepdims else found
        found = fn(x, axis=axis_of(axis, count, call))
        return tf.expand_dims(found, axis) if keepdims else found

    return find
