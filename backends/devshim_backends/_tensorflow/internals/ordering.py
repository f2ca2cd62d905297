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
    if not last:  # with batch_dims=0, the gradient of tf.gather is sparse
        x = tf.expand_dims(x, 0)
        return tf.squeeze(tf.gather(x, _order_of_last(x), batch_dims=1), 0)
    if axis == last:
        return tf.gather(x, _order_of_last(x), batch_dims=last)
    swapped = _swap(axis, last)
    return tf.transpose(sort(tf.transpose(x, swapped), last), swapped)


def _order(x: Any, axis: int) -> Any:
    if not x.dtype.is_floating:
        return tf.argsort(tf.cast(x, tf.int32) if x.dtype in _SMALL else x, axis=axis, stable=True)
    last = len(x.shape) - 1
    if axis == last:
        return _order_of_last(x)
    swapped = _swap(axis, last)
    return tf.transpose(_order_of_last(tf.transpose(x, swapped)), swapped)


def _swap(axis: int, last: int) -> list[int]:
    """Return the order of the axes with one of them and the last one swapped."""
    order = list(range(last + 1))
    order[axis], order[last] = last, axis
    return order


def _order_of_last(x: Any) -> Any:
    """Return the stable order of floats along the last axis: top_k lists the first of equal values first."""
    count = x.shape[-1]
    return tf.math.top_k(tf.bitwise.invert(_float_keys(x)), tf.shape(x)[-1] if count is None else count).indices


def _float_keys(x: Any) -> Any:
    """Return integers in the order of floats: both zeros are equal, and so are all NaNs, which are the largest."""
    x = x if x.dtype in _INTEGERS else tf.cast(x, tf.float32)
    bits = tf.bitcast(x, _INTEGERS[x.dtype])
    keys = tf.where(bits < 0, bits.dtype.min - bits, bits)
    return tf.where(tf.math.is_nan(x), tf.constant(bits.dtype.max, bits.dtype), keys)
