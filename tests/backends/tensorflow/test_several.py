"""Tests of sums over several TensorFlow devices: the engine of ``tf.distribute``, run on logical host devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import devshim as ds
from devshim.registry import registry

NAMES = ["/CPU:1", "/CPU:2", "/CPU:3"]


@pytest.fixture(autouse=True)
def _cards() -> Iterator[None]:
    ds.use("tensorflow")
    with ds.simulate(3):
        yield


def tensors(dtype: str) -> list[Any]:
    """Return numbers whose sum does not depend on the order."""
    return [ds.from_numpy(np.array([[i + 1, 3 * i], [-i, 99]]).astype(dtype), i) for i in range(3)]


@pytest.mark.parametrize("op", ["sum", "mean"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64"])
def test_sums_by_tf_distribute_equal_the_portable_ones(op: str, dtype: str) -> None:
    if op == "mean" and dtype.startswith("int"):
        return  # refused before any engine is used
    from devshim_backends._tensorflow.collectives import REDUCED_DTYPES, all_reduce_on_gpus

    xs = tensors(dtype)
    assert xs[0].dtype in REDUCED_DTYPES
    results = all_reduce_on_gpus(NAMES, xs, op)
    expected = ds.all_reduce_(list(xs), op)  # type: ignore[arg-type]
    assert [ds.device_of(each) for each in results] == ds.devices("gpu")
    for result, portable in zip(results, expected, strict=True):
        assert result.dtype == portable.dtype
        assert ds.to_numpy(result).tobytes() == ds.to_numpy(portable).tobytes()


def test_tf_distribute_only_sums_on_real_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no maximum, and simulated GPUs have no engine."""
    backend = registry.load("tensorflow")
    xs = tensors("float32")
    assert backend.all_reduce(xs, "sum") is None
    monkeypatch.setattr(type(backend), "to_native", lambda self, device: NAMES[device.index])
    devices = {id(x): ds.device_of(x) for x in xs}
    monkeypatch.setattr(type(backend), "device_of", lambda self, x: devices[id(x)])
    monkeypatch.setattr(backend, "simulated", 0)
    found = backend.all_reduce(xs, "sum")
    assert found is not None
    assert [each.numpy().tolist() for each in found] == [[[6, 9], [-3, 297]]] * 3
    assert backend.all_reduce(xs, "max") is None
    variables = [tf.Variable([True])] * 3
    assert backend.all_reduce(variables, "sum") is None, "no sum of what the engine does not take"


@pytest.mark.parametrize(
    "make",
    [lambda: tf.sparse.from_dense([[1.0, 0.0]]), lambda: tf.ragged.constant([[1.0], [2.0, 3.0]])],
    ids=["sparse", "ragged"],
)
def test_composite_tensors_are_not_split(make: Callable[[], Any]) -> None:
    with pytest.raises(ds.UnsupportedError, match=r"TensorFlow cannot split a (Sparse|Ragged)Tensor"):
        ds.split([make()], ["cpu", "gpu:1"])
