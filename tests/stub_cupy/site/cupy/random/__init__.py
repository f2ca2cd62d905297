"""A generator for each GPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from cupy._array import to_array
from cupy.random import _generator
from cupy.random._generator import get_random_state


def seed(seed: int | None = None) -> None:
    get_random_state().seed(seed)


def _draw(source: np.random.RandomState, function: str, a: float, b: float, size: Any, dtype: Any) -> Any:
    if np.dtype(dtype).char not in "fd":
        raise TypeError("cupy.random only supports float32 and float64")
    return to_array(np.asarray(getattr(source, function)(a, b, size), dtype=dtype))


def uniform(low: float = 0.0, high: float = 1.0, size: Any = None, dtype: Any = float) -> Any:
    return _draw(get_random_state(), "uniform", low, high, size, dtype)


def normal(loc: float = 0.0, scale: float = 1.0, size: Any = None, dtype: Any = float) -> Any:
    return _draw(get_random_state(), "normal", loc, scale, size, dtype)


class RandomState:
    def __init__(self, seed: int | None = None) -> None:
        self._source = np.random.RandomState(seed)

    def uniform(self, low: float = 0.0, high: float = 1.0, size: Any = None, dtype: Any = float) -> Any:
        return _draw(self._source, "uniform", low, high, size, dtype)

    def normal(self, loc: float = 0.0, scale: float = 1.0, size: Any = None, dtype: Any = float) -> Any:
        return _draw(self._source, "normal", loc, scale, size, dtype)


__all__ = ["RandomState", "_generator", "normal", "seed", "uniform"]
