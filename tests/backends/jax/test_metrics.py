"""Tests of `MetricLog` on JAX, whose arrays can disappear: donated to a compiled function, or deleted."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from devshim_backends._jax import collectives
from jax._src.array import ArrayImpl

import devshim as ds


@pytest.fixture(autouse=True, params=["cpu", "gpu:1"])
def where(two_cards: None, request: pytest.FixtureRequest) -> str:
    return request.param


def test_a_donated_value_stays_in_the_log(where: str) -> None:
    """A training state is donated as a whole, including the loss in it."""
    step = jax.jit(lambda state: {"loss": state["loss"] / 2, "w": state["w"] * 2}, donate_argnums=0)
    state = {"loss": ds.asarray(8.0, device=where), "w": ds.ones(4, device=where)}
    log = ds.MetricLog(where)
    with ds.transfers() as copies, ds.guard("error"):
        for _ in range(4):
            before = state["loss"]
            log.append(before)
            state = step(state)
            assert before.is_deleted()
        assert log.flush().tolist() == [8.0, 4.0, 2.0, 1.0]
    assert [(record.bytes, record.target) for record in copies.records] == [(16, ds.cpu())]


def test_a_value_deleted_later_stays_and_a_deleted_value_is_refused(where: str) -> None:
    log, x = ds.MetricLog(), ds.asarray(3.0, device=where)
    log.append(x)
    x.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        log.append(x)
    assert log.flush().tolist() == [3.0]


@pytest.mark.parametrize("dtype", ["float64", "int64", "bfloat16", "bool", "complex64"])
def test_values_keep_their_dtype(where: str, dtype: str) -> None:
    log = ds.MetricLog(where)
    log.append(ds.ones((), dtype=dtype, device=where))
    log.append(ds.ones((1, 1), dtype=dtype, device=where))
    assert log.flush().dtype.name == {"bfloat16": "float32"}.get(dtype, dtype)


def test_an_uncommitted_value_is_read_on_its_device() -> None:
    log, x = ds.MetricLog("cpu"), jnp.float32(2)
    with ds.on("gpu:1"):
        log.append(x)
    assert log.flush().tolist() == [2.0]


def test_dtypes_unknown_to_numpy_are_combined(where: str) -> None:
    """Trap: NumPy finds no common dtype for float16 and bfloat16."""
    log = ds.MetricLog(where)
    for dtype in (jnp.float16, jnp.bfloat16, jnp.float8_e5m2, jnp.int8):
        log.append(jax.device_put(jnp.ones((), dtype), ds.device(where).native()))
    values = log.flush()
    assert values.dtype == np.float32
    assert values.tolist() == [1.0] * 4


@pytest.mark.parametrize("x", [2.0, np.float32(2)])
def test_a_differentiated_number_can_be_appended(x: Any) -> None:
    log = ds.MetricLog()
    jax.grad(lambda t: (log.append(t), t * t)[1])(x)
    assert log.flush().tolist() == [2.0]


def test_a_value_that_is_not_computed_yet_is_not_waited_for(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its copy stays on the device, and is read with the other values."""
    log = ds.MetricLog(where)
    values = [ds.full((), float(i), dtype="float32", device=where) for i in range(4)]
    rows = ds.ones(3, dtype="float32", device=where)
    with ds.transfers() as copies, ds.guard("error"):
        log.append(values[0])
        monkeypatch.setattr(ArrayImpl, "is_ready", lambda x: False)
        monkeypatch.setattr(collectives, "memoryview", pytest.fail, raising=False)  # it would wait
        log.append(values[1])
        log.append(values[2])
        values[2].delete()
        with pytest.raises(ds.ArgumentError, match="one number"):
            log.append(rows)
        monkeypatch.undo()
        log.append(values[3])
        assert log.flush().tolist() == [0.0, 1.0, 2.0, 3.0]
    assert [record.bytes for record in copies.records] == [16]
