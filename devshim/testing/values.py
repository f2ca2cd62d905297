"""Test values: every dtype in random bits, and every memory layout that an array can have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

feature = pytest.mark.feature
"""Mark the features (keys of `contract.backend.FEATURES`) that a test is about; a declared gap in one makes it a gap.
"""

hook = pytest.mark.hook
"""Mark the hooks of `Kit` that a test needs; it is not collected if the adapter's subclass does not write them."""

cards = pytest.mark.cards
"""Mark the number of simulated GPUs that a test needs; with fewer it is not collected."""

FEATURE_OF = {
    "bool": "bool",
    "float16": "float16",
    **dict.fromkeys(("int64", "float64"), "float64"),
    **dict.fromkeys(("complex64", "complex128"), "complex"),
    "bfloat16": "bfloat16",
}
"""The feature under which a dtype can be declared missing."""

OPTIONAL = ("int16", "uint16", "uint32", "uint64")
"""Dtypes that a framework may lack without a declaration; they are then refused, never changed into others."""

REQUIRED = (
    *("bool", "uint8", "int8", "int32", "int64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
)
"""Dtypes that every backend has, or declares a gap for."""

DTYPES = [pytest.param(name, marks=feature(FEATURE_OF[name])) if name in FEATURE_OF else name for name in REQUIRED]
"""`REQUIRED` as parameters, each with its feature."""


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return NumPy's dtype for an array-API name; bfloat16 comes from ``ml_dtypes``."""
    if name == "bfloat16":
        name = pytest.importorskip("ml_dtypes", reason="hardware: ml_dtypes is not installed").bfloat16
    return np.dtype(name)


def sample(name: str = "float32", shape: tuple[int, ...] = (3, 4), seed: int = 7) -> np.ndarray:
    """Return an array of random bits, which include denormals, infinities and NaNs with payloads."""
    dtype = numpy_dtype(name)
    rng = np.random.default_rng(seed)
    if name == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    size = int(np.prod(shape)) * dtype.itemsize
    return np.frombuffer(rng.bytes(size), dtype).reshape(shape).copy()


def numbers(shape: tuple[int, ...] = (3, 4), dtype: str = "float32") -> np.ndarray:
    """Return small distinct numbers that every dtype but bool represents exactly."""
    return (np.arange(int(np.prod(shape))).reshape(shape) + 1).astype(numpy_dtype(dtype))


def bits(a: np.ndarray) -> tuple[str, tuple[int, ...], bytes]:
    """Return the dtype, shape and bytes, which are equal for two arrays exactly if these are equal bit for bit."""
    return a.dtype.newbyteorder("=").name, a.shape, np.ascontiguousarray(a).tobytes()


def _make_strided(a: np.ndarray) -> np.ndarray:
    wide = np.zeros((a.shape[0] * 2, a.shape[1] * 3), a.dtype)
    wide[::2, ::3] = a
    return wide[::2, ::3]


def _read_only(a: np.ndarray) -> np.ndarray:
    a.setflags(write=False)
    return a


def _swap_bytes(a: np.ndarray) -> np.ndarray:
    return a.byteswap().view(a.dtype.newbyteorder())


def at_offset(a: np.ndarray, offset: int) -> np.ndarray:
    """Return a writable copy of an array that starts ``offset`` bytes after a 64-byte boundary."""
    raw = np.zeros(a.nbytes + 128, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    placed = np.ndarray(a.shape, a.dtype, raw.data, start)
    placed[...] = a
    return placed


LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "contiguous": lambda a: a,
    "transposed": lambda a: a.T,
    "reversed": lambda a: a[::-1, ::-1],
    "strided": _make_strided,
    "broadcast": lambda a: np.broadcast_to(a[0], a.shape),
    "zero_d": lambda a: a[:1, :1].reshape(()),
    "no_elements": lambda a: a[:0],
    "read_only": _read_only,
    "other_endian": _swap_bytes,
    "unaligned": lambda a: at_offset(a, 1),
    "aligned": lambda a: at_offset(a, 0),
}
"""Name -> how to lay an array out in memory: the values may be rearranged, never changed."""


def native_bits(a: np.ndarray) -> tuple[str, tuple[int, ...], bytes]:
    """Return `bits` of an array in any byte order, as read in the native one."""
    if a.dtype.isnative:
        return bits(a)
    return bits(np.ascontiguousarray(a).byteswap().view(a.dtype.newbyteorder("=")))
