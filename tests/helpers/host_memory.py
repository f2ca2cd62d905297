"""Host memory of a given kind."""

from __future__ import annotations

from typing import Any

import numpy as np


def aligned(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the same values in memory that begins at a multiple of 64 bytes, which TensorFlow and JAX ask for."""
    raw = np.zeros(a.nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    placed = raw[start : start + a.nbytes].view(a.dtype).reshape(a.shape)
    placed[...] = a
    return placed
