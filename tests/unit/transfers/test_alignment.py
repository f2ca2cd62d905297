"""Tests of memory that a framework's operators cannot use: it is checked before it is shared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import devshim as ds
from devshim.transfers import alignment, dlpack
from devshim.transfers.dlpack import TensorInfo

ADDRESS = 1 << 20


@pytest.fixture
def backend(fake: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(type(fake), "alignment", 0)
    return fake


def offer(address: int, dtype: str = "float64", device: int = dlpack.CPU, shape: tuple[int, ...] = (3,)) -> TensorInfo:
    return TensorInfo((device, 0), dtype, shape, (1,) * len(shape), address, False)


@pytest.fixture
def check(backend: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what is asked about each capsule that the framework gets."""
    monkeypatch.setattr(dlpack, "ValidatingExporter", lambda source, check: check)
    return alignment.check_producer(backend, object())


def test_an_element_needs_an_address_of_its_own_size(backend: Any) -> None:
    assert alignment.alignment_problem(backend, "float64", 8, ADDRESS) is None
    why = alignment.alignment_problem(backend, "float64", 8, ADDRESS + 4)
    assert why == (
        "Fakeframe's operators need memory aligned to 8 bytes for float64, and the alignment of this address is 4"
    )


def test_a_framework_may_need_more(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(backend), "alignment", 64)
    assert alignment.alignment_problem(backend, "int8", 1, ADDRESS) is None
    assert "64 bytes for int8" in str(alignment.alignment_problem(backend, "int8", 1, ADDRESS + 32))


def test_a_framework_that_needs_nothing_gets_the_source_itself(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    source = object()
    assert alignment.check_producer(backend, source) is not source
    monkeypatch.setattr(type(backend), "alignment", 1)
    assert alignment.check_producer(backend, source) is source


@pytest.mark.parametrize("device", [dlpack.CPU, dlpack.CUDA_HOST, dlpack.ROCM_HOST])
def test_host_memory_is_looked_at(check: Any, device: int) -> None:
    check(offer(ADDRESS, device=device))
    with pytest.raises(BufferError, match="aligned to 8 bytes"):
        check(offer(ADDRESS + 4, device=device))


@pytest.mark.parametrize(
    ("dtype", "size"),
    [("int8", 1), ("bool", 1), ("float16", 2), ("bfloat16", 2), ("float32", 4), ("int64", 8), ("complex128", 16)],
)
def test_every_dtype_has_its_size(check: Any, dtype: str, size: int) -> None:
    check(offer(ADDRESS + size, dtype))
    if size > 1:
        with pytest.raises(BufferError, match=f"aligned to {size} bytes for {dtype}"):
            check(offer(ADDRESS + size // 2, dtype))


def test_a_dtype_without_a_name_is_left_to_the_consumer(check: Any) -> None:
    check(offer(ADDRESS + 1, "(code 9, 3 bits, 1 lanes)"))


def test_what_is_on_a_card_or_has_no_element_is_left_alone(check: Any) -> None:
    check(offer(ADDRESS + 4, device=dlpack.CUDA))
    check(offer(ADDRESS + 4, shape=(3, 0)))
    check(offer(0, shape=(0,)))


def test_an_array_of_numpys_is_looked_at_too(backend: Any) -> None:
    memory = np.zeros(64, "uint8")
    start = -memory.ctypes.data % 8
    odd = memory[start + 4 : start + 20].view("float64")
    ds.use("fakeframe")
    assert np.shares_memory(ds.from_numpy(memory[start : start + 16].view("float64"), copy=False), memory)
    with pytest.raises(ds.CopyNeededError, match="aligned to 8 bytes for float64"):
        ds.from_numpy(odd, copy=False)
    assert ds.from_numpy(odd[:0], copy=False).shape == (0,)
    with pytest.raises(ds.CopyNeededError):
        ds.from_numpy(memory, "gpu:1", copy=False)
