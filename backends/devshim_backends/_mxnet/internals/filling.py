"""Arrays that are filled with one number."""

from __future__ import annotations

import math
from typing import Any

import mxnet as mx
import numpy as np

from devshim_backends._mxnet.internals.native import is_exact

__all__ = ["full"]


def full(shape: tuple[int, ...], value: Any, **options: Any) -> Any:
    """Return what `mx.np.full` returns, with the sign of -0.0, which MXNet drops, and with the exact number."""
    if options.get("dtype") == "float64" and not is_exact(value):
        return mx.np.array(np.full(shape, value, "float64"), **options)
    made = mx.np.full(shape, value, **options)
    if value or isinstance(value, complex) or math.copysign(1, value) > 0 or np.dtype(made.dtype).kind != "f":
        return made
    return mx.np.negative(made)
