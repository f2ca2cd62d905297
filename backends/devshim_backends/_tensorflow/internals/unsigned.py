"""Functions of unsigned integers, for which TensorFlow has no kernels, computed as int64."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

__all__ = ["unsigned_power", "widen_unsigned"]


def widen_unsigned(*xs: Any) -> list[Any]:
    """Return unsigned integers in a dtype that has all operators."""
    return [tf.cast(x, tf.int64) for x in xs]


def unsigned_power(base: Any, exponent: Any) -> Any:
    """Return powers of unsigned integers, whose low bits int64 has, too.

    Exponents of uint64 from 2**63 would be negative. Bit 62 replaces bit 63: for odd bases, neither changes the low 64
    bits of the power, and for even ones each makes them zero.
    """
    number, count = widen_unsigned(base, exponent)
    if base.dtype == tf.uint64:
        count = tf.where(count < 0, tf.bitwise.bitwise_or(count + tf.int64.min, tf.constant(1 << 62, tf.int64)), count)
    return tf.cast(tf.pow(number, count), base.dtype)
