"""Axes of reductions, as arrays, which TensorFlow converts to tensors faster than tuples."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from devshim_backends._array_api.manipulation import axes_of, axis_of


def reduced_axes(axis: Any, x: Any) -> Any:
    """Return the axes of a reduction: one as a number, which TensorFlow keeps as a tensor, and several as an array."""
    count = len(x.shape)
    if type(axis) is int:
        return axis_of(axis, count, "a reduction")
    return _as_array(axes_of(axis, count, "a reduction"))


@cache
def _as_array(axes: tuple[int, ...]) -> np.ndarray:
    """Return an array: TensorFlow converts it to a tensor in a third of the time that it takes for a tuple."""
    return np.array(axes, np.int32)
