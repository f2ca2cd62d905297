"""Conversion between a framework and NumPy over the same memory, by DLPack: the time must not depend on the size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import devshim as ds
from benchmarks.session import Rival, Session

SMALL, LARGE = 1, 1 << 24
SAME = 1.1
"""The largest ratio of the time for 64 MiB to that for 4 bytes: 1, apart from noise."""


def aligned(count: int) -> np.ndarray:
    """Return an array in memory that every framework can take over: aligned to 64 bytes."""
    raw = np.zeros(count * 4 + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + count * 4].view(np.float32)


@pytest.fixture
def arrays() -> dict[str, Any]:
    """Return a small and a large array."""
    return {"a": aligned(SMALL), "large": aligned(LARGE), "np": np}


@pytest.fixture
def tensors(session: Session) -> dict[str, Any]:
    """Return a small and a large writable tensor: others are never shared with NumPy."""
    if session.backend == "numpy":
        pytest.skip("NumPy converts nothing to itself")
    names = {"x": ds.zeros(SMALL, dtype="float32"), "large": ds.zeros(LARGE, dtype="float32"), "np": np}
    try:
        ds.convert(names["x"], "numpy", copy=False)
    except ds.CopyNeededError as error:
        pytest.skip(f"never shared: {error.problem}")
    return names


def test_from_numpy_by_dlpack(benchmark: Any, session: Session, arrays: dict[str, Any]) -> None:
    """Taking over an array's memory, compared with the bare protocol."""
    take = session.native.take
    if not take:
        pytest.skip("NumPy converts nothing to itself")
    ours = f"ds.convert(a, {session.backend!r}, copy=False)"
    session.versus(benchmark, "convert", "conversion from NumPy", ours, [Rival(take, take, 1.5)], arrays)


def test_from_numpy_whatever_its_size(benchmark: Any, session: Session, arrays: dict[str, Any]) -> None:
    """An array 16 million times as large takes the same time."""
    if not session.native.take:
        pytest.skip("NumPy converts nothing to itself")
    ours = f"ds.convert(large, {session.backend!r}, copy=False)"
    rivals = [Rival("the same of 4 B", ours.replace("large", "a"), SAME)]
    session.versus(benchmark, "convert", "conversion of 64 MiB from NumPy", ours, rivals, arrays)


def test_to_numpy_by_dlpack(benchmark: Any, session: Session, tensors: dict[str, Any]) -> None:
    """Sharing a tensor's memory with NumPy."""
    bare = "np.from_dlpack(x)" if hasattr(tensors["x"], "__dlpack_device__") else ""
    rivals = [Rival(bare, bare, 1.5)] if bare else []
    session.versus(benchmark, "convert", "conversion to NumPy", "ds.convert(x, 'numpy', copy=False)", rivals, tensors)


def test_to_numpy_whatever_its_size(benchmark: Any, session: Session, tensors: dict[str, Any]) -> None:
    """A tensor 16 million times as large takes the same time."""
    ours = "ds.convert(large, 'numpy', copy=False)"
    rivals = [Rival("the same of 4 B", ours.replace("large", "x"), SAME)]
    session.versus(benchmark, "convert", "conversion of 64 MiB to NumPy", ours, rivals, tensors)
