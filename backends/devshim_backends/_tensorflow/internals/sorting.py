"""Sorting with NaNs last.

TensorFlow sorts with comparisons that are false for NaNs, and then returns other numbers in the wrong order (2.21). It
sorts integers instead here, which are in the order of the floats.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

__all__ = ["argsort", "sort"]

_SMALL = frozenset({tf.bool, tf.int8, tf.uint8, tf.int16, tf.uint16})
"""Dtypes that TensorFlow does not sort in ascending order."""

_INTEGERS = {tf.float32: tf.int32, tf.float64: tf.int64}


def argsort(x: Any, axis: int) -> Any:
    """Return the stable ascending order of the elements along an axis, as int64."""
    return tf.cast(_order(x, axis), tf.int64)


def sort(x: Any, axis: int) -> Any:
    """Return the elements along an axis in ascending order. Gradients flow to them."""
    if not x.dtype.is_floating:
        return tf.cast(tf.sort(tf.cast(x, tf.int32), axis=axis), x.dtype) if x.dtype in _SMALL else tf.sort(x, axis)
    last = len(x.shape) - 1
    if axis == last:
        return tf.gather(x, _order(x, axis), batch_dims=last)
    swapped = list(range(last + 1))
    swapped[axis], swapped[last] = last, axis
    return tf.transpose(sort(tf.transpose(x, swapped), last), swapped)


def _order(x: Any, axis: int) -> Any:
    keys = _float_keys(x) if x.dtype.is_floating else tf.cast(x, tf.int32) if x.dtype in _SMALL else x
    return tf.argsort(keys, axis=axis, stable=True)


def _float_keys(x: Any) -> Any:
    """Return integers in the order of floats: both zeros are equal, and so are all NaNs, which are the largest."""
    x = x if x.dtype in _INTEGERS else tf.cast(x, tf.float32)
    bits = tf.bitcast(x, _INTEGERS[x.dtype])
    keys = tf.where(bits < 0, bits.dtype.min - bits, bits)
    return tf.where(tf.math.is_nan(x), tf.constant(bits.dtype.max, bits.dtype), keys)
