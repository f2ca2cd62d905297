"""The values that are converted, and the result of each memory layout: the expected values of the checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from cells import ADDRESSES

Array = Any

SIZES = (1, 2, 3, 5, 7, 8, 9, 15, 17, 31, 33, 35, 36, 63, 64, 65, 100, 4096)
"""Numbers of elements: one less and one more than vector widths, and none left over."""
SHAPES: dict[str, tuple[int, ...]] = {"0-d": (), "empty": (0, 3), "sliced": (10, 9)}
SHAPES |= {layout: (SIZES[offset % len(SIZES)],) for layout, offset in ADDRESSES.items()}
ROWS, COLUMNS = 5, 3  # odd, so that only the first row starts at a multiple of 64 bytes


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return NumPy's dtype of a name."""
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def base(layout: str, dtype: str) -> Array:
    """Return the base of a source: random bits, including NaNs and denormals, in its own aligned memory."""
    shape, kind = SHAPES.get(layout, (ROWS, COLUMNS)), numpy_dtype(dtype)
    rng = np.random.default_rng(7)
    count = int(np.prod(shape))
    if layout in ADDRESSES:  # used in computations, so every framework's sums and products must be exact
        return at(rng.integers(1, 4, shape).astype(kind), ADDRESSES[layout])
    array = at(np.frombuffer(rng.bytes(count * kind.itemsize), kind).reshape(shape), 0) if dtype != "bool" else None
    if array is None:
        array = at(rng.integers(0, 2, shape).astype(bool), 0)
        array[(0,) * array.ndim if array.size else ...] = True  # some value is not zero, regardless of the shape
    return array


def at(array: Array, offset: int) -> Array:
    """Return a writable copy of an array that starts a number of bytes after a multiple of 64."""
    raw = np.zeros(array.nbytes + 192, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    placed: Array = np.ndarray(array.shape, array.dtype, raw.data, start)
    placed[...] = array
    return placed


INDEXED: dict[str, Callable[[Any], Any]] = {
    "transposed": lambda x: x.T,
    "sliced": lambda x: x[::2, ::3],
    "offset": lambda x: x[1:],
    "reversed": lambda x: x[::-1, ::-1],
}
"""Layouts with the same spelling on every framework that has them."""


def expected(layout: str, array: Array) -> Array:
    """Return the values that a layout makes of its base."""
    if layout == "broadcast":
        return np.broadcast_to(array[0], array.shape)
    if layout == "lazy":
        return lazy(array)
    return INDEXED.get(layout, lambda x: x)(array)


def lazy(array: Array) -> Array:
    """Return the values after a pending conjugation in PyTorch, or negation for real numbers, bit for bit."""
    changed = array.copy()
    if array.dtype.kind in "biu":
        return changed  # they have none
    width = np.dtype(f"u{array.real.itemsize}")
    parts = changed.reshape(-1).view(width)
    touched = parts[1::2] if array.dtype.kind == "c" else parts
    touched ^= width.type(1 << (8 * width.itemsize - 1))
    return changed


def bits(array: Array) -> tuple[str, tuple[int, ...], bytes]:
    """Return the dtype, shape and bytes, equal for two arrays exactly if these are equal bit for bit in any order or
    strides.
    """
    native = array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
    return native.dtype.name, native.shape, np.ascontiguousarray(native).tobytes()
