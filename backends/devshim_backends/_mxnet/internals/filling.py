"""Arrays that are filled with one number."""

from __future__ import annotations

import math
from typing import Any

import mxnet as mx
import numpy as np

__all__ = ["full"]


def full(shape: tuple[int, ...], value: Any, **options: Any) -> Any:
    """Return what `mx.np.full` returns, with the sign of -0.0, which MXNet drops."""
    made = mx.np.full(shape, value, **options)
    if value or isinstance(value, complex) or math.copysign(1, value) > 0 or np.dtype(made.dtype).kind != "f":
        return made
    return mx.np.negative(made)
