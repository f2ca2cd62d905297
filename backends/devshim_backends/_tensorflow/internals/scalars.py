"""Python numbers as tensors without dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

__all__ = ["scalar"]


def scalar(value: Any, dtype: Any, x: Any) -> Any:
    """Return a number as a tensor.

    TensorFlow caches the tensors of Python numbers, and returns its 0.0 for -0.0. It does not cache NumPy arrays.
    """
    if not value and isinstance(value, (float, complex)) and (dtype.is_floating or dtype.is_complex):
        value = np.array(value, dtype.as_numpy_dtype)
    return tf.constant(int(value) if type(value) is bool and dtype != tf.bool else value, dtype)
