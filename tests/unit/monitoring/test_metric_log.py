"""Tests of `MetricLog`: values stay on the device, unchanged, and are read in one transfer; on NumPy GPUs."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import devshim as ds
from devshim.registry import registry


@pytest.fixture(autouse=True)
def _cards(cards: object) -> None:
    """Use two simulated GPUs."""


def scalar(value: float, device: Any = "gpu:1", shape: Any = ()) -> Any:
    return ds.full(shape, value, dtype="float32", device=device)


def test_one_transfer_for_all() -> None:
    log = ds.MetricLog("gpu:1")
    with ds.guard("error"), ds.transfers() as copies:
        for i in range(100):
            log.append(scalar(i, shape=(1,) * (i % 3)))
        assert copies.count == 0
        assert len(log) == 100
        found = log.flush()
    assert copies.count == 1
    assert copies.bytes("gpu:1", "cpu") == copies.total_bytes == 400
    assert found.dtype == "float32"
    assert found.tolist() == list(range(100))
    assert len(log) == 0
    assert log.flush().shape == (0,)


def test_a_value_is_taken_as_it_is_now() -> None:
    log, total = ds.MetricLog(), scalar(0)
    for _ in range(3):
        total += scalar(1)
        log.append(total)
    assert log.flush().tolist() == [1, 2, 3]


def test_beyond_its_capacity_it_goes_on() -> None:
    log = ds.MetricLog("gpu:0", capacity=4)
    with ds.transfers() as copies:
        for i in range(10):
            log.append(scalar(i, "gpu:0"))
        assert copies.count == 2
        assert "10 values, 2 of them on the device" in repr(log)
        assert log.flush().tolist() == list(range(10))
    assert copies.count == 3


def test_as_many_as_its_capacity_are_still_one_transfer_at_the_end() -> None:
    log = ds.MetricLog("gpu:0", capacity=4)
    with ds.transfers() as copies:
        for i in range(4):
            log.append(scalar(i, "gpu:0"))
        assert copies.count == 0
        assert log.flush().tolist() == list(range(4))
    assert copies.count == 1


def test_what_does_not_fit_the_log_is_not_taken_where_the_rest_cannot_be_brought() -> None:
    log = ds.MetricLog("gpu:0", capacity=1)
    first, second = scalar(1, "gpu:0"), scalar(2, "gpu:0")
    log.append(first)
    with ds.simulate(2, faults=ds.Fault("gpu:0", "copy")):
        with pytest.raises(ds.DeviceFailedError):
            log.append(second)
        assert len(log) == 1
        log.append(second)
    assert log.flush().tolist() == [1, 2]


def test_numbers_keep_their_place() -> None:
    log = ds.MetricLog("gpu:1", capacity=2)
    for value in (0.5, scalar(1), 2, scalar(3), np.float64(4), scalar(5)):
        log.append(value)
    assert log.flush().tolist() == [0.5, 1, 2, 3, 4, 5]
    log.append(7)
    assert (log.flush().dtype, len(log)) == ("float64", 0)


def test_the_widest_dtype_holds_all() -> None:
    log = ds.MetricLog()
    log.append(scalar(1))
    log.append(ds.full((), 2.5, dtype="float64", device="gpu:1"))
    found = log.flush()
    assert (found.dtype, found.tolist()) == ("float64", [1, 2.5])


BESIDE: dict[str, tuple[str, float, Any, str]] = {
    "a fraction beside integers": ("int32", 3, 0.5, "float64"),
    "an integer beside integers": ("int64", 1, 2**60 + 1, "int64"),
    "too large an integer": ("int32", 3, 2**40, "float64"),
    "a whole float": ("int8", 3, 4.0, "int8"),
    "not a number beside integers": ("uint8", 3, float("inf"), "float64"),
    "a fraction beside truths": ("bool", 1, 0.25, "float64"),
    "a truth": ("bool", 0, True, "bool"),
    "too large a float": ("float16", 1, 1e6, "float64"),
    "infinity": ("float16", 1, float("inf"), "float16"),
    "beside a complex number": ("complex64", 1, 0.5, "complex64"),
}


@pytest.mark.parametrize("name", BESIDE)
def test_a_python_number_is_what_it_was(name: str) -> None:
    """It takes the tensors' dtype if that can represent it, and is not truncated otherwise."""
    dtype, value, number, expected = BESIDE[name]
    log = ds.MetricLog("gpu:1")
    log.append(ds.full((), value, dtype=dtype, device="gpu:1"))
    log.append(number)
    found = log.flush()
    assert (found.dtype, found.tolist()) == (expected, [value, number])


def test_dtypes_that_numpy_cannot_join() -> None:
    pytest.importorskip("ml_dtypes")
    for other, value in (("float16", 1.0009765625), ("int64", 2**24 + 1), ("bfloat16", 0.5)):
        log = ds.MetricLog("gpu:1")
        log.append(ds.full((), 2, dtype="bfloat16", device="gpu:1"))
        log.append(ds.full((), value, dtype=other, device="gpu:1"))
        assert log.flush().tolist() == [2, value]


def test_what_a_thread_appends_while_another_flushes_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    log, backend = ds.MetricLog("gpu:1"), registry.load("numpy")
    meanwhile = threading.Thread(target=lambda: log.append(scalar(2)))
    to_numpy = backend.to_numpy

    def interrupted(x: Any, copy: bool) -> Any:
        array = to_numpy(x, copy)
        meanwhile.start()
        meanwhile.join(0.2)  # it ends here only if it does not wait for the flush
        return array

    monkeypatch.setattr(backend, "to_numpy", interrupted)
    log.append(scalar(1))
    assert log.flush().tolist() == [1]
    meanwhile.join()
    monkeypatch.undo()
    assert log.flush().tolist() == [2]


def test_what_is_elsewhere_is_refused() -> None:
    log = ds.MetricLog("gpu:1")
    with pytest.raises(ds.DeviceMismatchError, match="a MetricLog on gpu:1 got a value on gpu:0"):
        log.append(scalar(1, "gpu:0"))
    first = ds.MetricLog()
    first.append(scalar(1))
    with pytest.raises(ds.DeviceMismatchError):
        first.append(scalar(1, "cpu"))
    assert first.flush().tolist() == [1]


@pytest.mark.parametrize("value", [[1.0], "1", None, 1j])
def test_what_is_no_number(value: Any) -> None:
    with pytest.raises(ds.ArgumentError, match="value is"):
        ds.MetricLog().append(value)


def test_what_is_no_scalar() -> None:
    with pytest.raises(ds.ArgumentError, match=r"one number at a time, and this tensor has the shape \(2,\)"):
        ds.MetricLog().append(scalar(0, shape=(2,)))
    with pytest.raises(ds.ArgumentError, match="takes numbers, and this tensor is of dtype str"):
        ds.MetricLog().append(np.array("a"))
    with pytest.raises(ds.ConversionError, match="masked"):
        ds.MetricLog().append(np.ma.masked_array([1.0], [True]))
    with pytest.raises(ds.ArgumentError, match="a number that float64 can hold"):
        ds.MetricLog().append(10**400)
    with pytest.raises(ds.ArgumentError, match="capacity is 0"):
        ds.MetricLog(capacity=0)
    with pytest.raises(ds.DeviceNotFoundError):
        ds.MetricLog("gpu:9")


def test_a_failed_transfer_loses_nothing() -> None:
    log = ds.MetricLog("gpu:1")
    log.append(scalar(3))
    ds.simulate(2, faults=ds.Fault("gpu:1", "copy"))
    with pytest.raises(ds.DeviceFailedError):
        log.flush()
    assert log.flush().tolist() == [3]
