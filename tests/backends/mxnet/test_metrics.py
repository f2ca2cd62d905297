"""Tests of `MetricLog` on MXNet, which computes while the program goes on, and cannot be asked if a number is ready."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import devshim as ds

mx = ds.framework("mxnet")
pytestmark = pytest.mark.usefixtures("current")


@pytest.fixture
def _every_read_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    from devshim_backends._mxnet import collectives

    monkeypatch.setattr(collectives, "_LONG_READ", -1.0)


def number(interface: str, value: float, dtype: str) -> Any:
    """Return an array of one element: of shape () in ``mx.np``, and of shape (1,) in ``mx.nd``."""
    make = getattr(mx, interface).array
    return make(value if interface == "np" else [value], dtype=dtype, ctx=mx.cpu())


@pytest.mark.usefixtures("_every_read_waits")
@pytest.mark.parametrize("interface", ["nd", "np"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "int64", "uint8"])
def test_a_log_that_had_to_wait_copies_the_next_numbers(interface: str, dtype: str) -> None:
    log = ds.MetricLog(capacity=4)
    for i in range(6):
        x = number(interface, i, dtype)
        log.append(x)
        x += 100
        assert isinstance(log._kept[-1], bytes if i in (0, 4) else type(x))
    found = log.flush()
    assert found.tolist() == [0, 1, 2, 3, 4, 5]
    assert found.dtype == np.dtype(dtype)


@pytest.mark.usefixtures("_every_read_waits")
def test_copies_are_not_recorded_for_gradients() -> None:
    log, w = ds.MetricLog(), mx.np.array([3.0])
    w.attach_grad()
    with mx.autograd.record():
        for _ in range(3):
            loss = w * w
            log.append(loss)
    loss.backward()
    assert ds.to_numpy(w.grad) == 6
    assert log.flush().tolist() == [9, 9, 9]


@pytest.mark.usefixtures("_every_read_waits")
def test_other_arrays_are_refused_as_before() -> None:
    log = ds.MetricLog()
    for _ in range(2):
        log.append(mx.np.array(1.0))
    with pytest.raises(ds.ArgumentError, match="one number at a time"):
        log.append(mx.np.ones(2))
    log.append(mx.np.array(2, dtype="int32"))
    assert log.flush().tolist() == [1, 1, 2]


@pytest.mark.usefixtures("_every_read_waits")
def test_a_flush_of_copies_on_a_simulated_gpu_is_one_transfer() -> None:
    with ds.simulate(gpus=2):
        log = ds.MetricLog("gpu:1")
        for i in range(3):
            log.append(ds.full((), float(i), device="gpu:1"))
        with ds.transfers() as transfers:
            assert log.flush().tolist() == [0, 1, 2]
        assert [(each.source, each.target) for each in transfers.records] == [(ds.gpu(1), ds.cpu())]
