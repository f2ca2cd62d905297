"""Tests of Keras metrics that are placed without a model."""

from __future__ import annotations

import keras
import numpy as np
import pytest
from model_leaves import devices

import devshim as ds

pytestmark = pytest.mark.usefixtures("three_cards")

TARGETS = np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]], "float32")
OUTPUTS = np.array([[0.1, 0.9], [0.6, 0.4], [0.7, 0.3]], "float32")
GPU = ds.gpu(1)


@pytest.mark.parametrize("name", ["AUC", "MeanSquaredError", "F1Score", "R2Score"])
def test_a_metric_moves_and_computes_there(name):
    """Its variables move, also those that it makes with its first values, and the result is the host's."""
    metric, host = (getattr(keras.metrics, name)() for _ in range(2))
    assert ds.place(metric, GPU) is metric
    metric.update_state(ds.from_numpy(TARGETS, GPU), ds.from_numpy(OUTPUTS, GPU))
    host.update_state(TARGETS, OUTPUTS)
    assert devices(metric) == {GPU}
    assert ds.device_of(metric.result()) is GPU
    np.testing.assert_allclose(ds.to_numpy(metric.result()), host.result(), rtol=1e-6)
    metric.reset_state()
    assert devices(metric) == {GPU}


def test_a_metric_comes_back_and_is_copied():
    metric = ds.place(keras.metrics.MeanSquaredError(), GPU)
    metric.update_state(ds.from_numpy(TARGETS, GPU), ds.from_numpy(OUTPUTS, GPU))
    twin = ds.copy(metric, "gpu:0")
    assert (devices(twin), devices(metric)) == ({ds.gpu(0)}, {GPU})
    assert float(twin.result()) == float(metric.result())
    assert devices(ds.place(metric, "cpu")) == {ds.cpu()}
    metric.update_state(TARGETS, OUTPUTS)
    assert float(metric.result()) == float(twin.result())


def test_a_metric_of_ones_own_moves():
    class Largest(keras.metrics.Metric):
        def __init__(self):
            super().__init__()
            self.largest = self.add_variable((), "zeros", name="largest")

        def update_state(self, values):
            self.largest.assign(keras.ops.maximum(self.largest, keras.ops.max(values)))

        def result(self):
            return self.largest * 1

    metric = ds.place(Largest(), GPU)
    metric.update_state(ds.from_numpy(OUTPUTS, GPU))
    assert devices(metric) == {GPU}
    assert float(metric.result()) == np.float32(0.9)
    twin = ds.copy(metric, "gpu:0")
    assert devices(twin) == {ds.gpu(0)}
    assert float(twin.result()) == np.float32(0.9)
