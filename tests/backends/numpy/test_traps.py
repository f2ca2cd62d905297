"""Tests of the peculiarities of NumPy: each test names the trap, and fails without the adapter's workaround for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import devshim as ds
from devshim.transfers import dlpack

NAMES = ["bool", "int16", "uint64", "float16", "float32", "complex128"]


pytestmark = pytest.mark.usefixtures("current")


class Unversioned:
    """A producer like those of the Paddle and MXNet adapters: its capsules cannot say that memory is read-only."""

    def __init__(self, source: Any) -> None:
        self.source = source

    def __dlpack_device__(self) -> tuple[int, None]:
        return (1, None)

    def __dlpack__(self, **options: Any) -> Any:
        return self.source.__dlpack__()


def exchanged(backend: Any, x: Any) -> Any:
    return backend.from_dlpack(Unversioned(backend.to_dlpack(x)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "strided", "0-d", "empty"])
def test_exchanged_arrays_are_writable(name: str, layout: str, backend: Any) -> None:
    """Trap: NumPy makes arrays from an unversioned capsule read-only, and before 2.1 arrays from any capsule."""
    x = np.arange(24).reshape(4, 6).astype(name)
    x = {"transposed": x.T, "strided": x[::2, ::3], "0-d": x[1, 1, ...], "empty": x[:0]}.get(layout, x)
    y = exchanged(backend, x)
    assert (y.dtype, y.shape, y.flags.writeable) == (x.dtype, x.shape, True)
    assert np.array_equal(x, y)
    y[...] = 0
    assert not x.any()


@pytest.mark.parametrize("shape", [(2, 3), (), (0, 3)])
def test_bfloat16_is_shared(shape: tuple[int, ...], backend: Any) -> None:
    """Trap: NumPy's DLPack does not support this dtype, in either direction."""
    bfloat16 = pytest.importorskip("ml_dtypes", reason="hardware: ml_dtypes is not installed").bfloat16
    x = np.full(shape, 1.5, bfloat16)
    assert dlpack.read(backend.to_dlpack(x).__dlpack__()).dtype == "bfloat16"
    y = exchanged(backend, x)
    assert (y.dtype, y.shape) == (x.dtype, x.shape)
    x[...] = 2
    assert (y == 2).all()


def test_read_only_memory_is_exported(backend: Any) -> None:
    """Trap: NumPy exports no read-only array in an unversioned capsule; JAX and TensorFlow could not write to it."""
    x = np.frombuffer(np.arange(4.0).tobytes())
    y = exchanged(backend, x)
    assert y.ctypes.data == x.ctypes.data
    backend.freeze(y)
    with pytest.raises(ValueError, match="read-only"):
        y[0] = 1


def test_a_result_outlives_its_source(backend: Any) -> None:
    """Trap: an array over another's memory must keep it alive through all objects between them."""
    y = exchanged(backend, np.arange(1000))
    noise = [np.full(1000, -1) for _ in range(50)]
    assert y.tolist() == list(range(1000)), len(noise)


def test_a_mask_is_not_lost(backend: Any) -> None:
    """Trap: a masked array has all attributes of an array, so its values would be exported without the mask."""
    x = np.ma.masked_array([1.0, 2.0], [False, True])
    for call in (
        lambda: ds.to_numpy(x),
        lambda: ds.to_numpy(x, copy=False),
        lambda: backend.to_dlpack(x),
    ):
        with pytest.raises(ds.ConversionError, match="mask"):
            call()


def test_options_of_a_ufunc_reach_numpy() -> None:
    """Trap: functions of a namespace take only the standard's arguments, and NumPy's own options are lost."""
    x = np.ones(3, "float32")
    xp = ds.namespace(x)
    out = np.zeros(3)
    assert xp.add(x, x, dtype="float64").dtype == np.float64
    assert xp.sqrt(x, out=out) is out
    assert out.tolist() == [1.0, 1.0, 1.0]
