"""Tests of Keras 3 with its JAX backend: its models on GPUs, and behaviour that only JAX has."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from keras_cases import GPU, KerasCases, X
from keras_kit import filtered, keras_on

import devshim as ds

keras_on("jax")

keras = pytest.importorskip("keras")

pytestmark = filtered()


class TestKerasOnJax(KerasCases):
    name = "jax"


@pytest.fixture(autouse=True)
def _two(two_cards):
    keras.utils.set_random_seed(1)


def net():
    layers = keras.layers
    model = keras.Sequential([layers.Dense(8, activation="relu"), layers.Dense(3)])
    model.build((None, 4))
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    return model


def test_a_model_over_two_gpus_is_refused():
    model = net()
    with pytest.raises(ds.UnsupportedError, match=r"dense.kernel would be on gpu:0 and dense_1.kernel on gpu:1"):
        ds.place(model, ds.Placement({"dense": "gpu:0"}, default="gpu:1"))
    assert ds.placement_of(model).devices == {ds.cpu()}


def test_a_stateless_call_in_a_compiled_function():
    model = ds.place(net(), GPU)

    @jax.jit
    def predict(weights, states, x):
        return model.stateless_call(weights, states, x)[0]

    weights = [variable.value for variable in model.trainable_variables]
    states = [variable.value for variable in model.non_trainable_variables]
    x = ds.from_numpy(X, GPU)
    y = predict(weights, states, x)
    assert ds.device_of(y) is GPU
    assert np.allclose(ds.to_numpy(y), ds.to_numpy(model(x)), atol=1e-6)


def test_a_model_that_would_keep_a_tracer_is_refused():
    """Statistics of a batch that `value_and_grad` would write inside `jax.jit` stay as they are."""
    layers = [keras.layers.Input((4,)), keras.layers.BatchNormalization(), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    x = ds.ones((3, 4))

    def loss(model, x, training):
        return model(x, training=training).sum()

    before = [ds.to_numpy(variable.value) for variable in model.variables]
    with pytest.raises(ds.TracingError, match="changes its own state"):
        jax.jit(lambda x: ds.value_and_grad(loss)(model, x, True))(x)
    after = [ds.to_numpy(variable.value) for variable in model.variables]
    assert all((old == new).all() for old, new in zip(before, after, strict=True))
    value, _ = jax.jit(lambda x: ds.value_and_grad(loss)(model, x, False))(x)
    assert float(value) == pytest.approx(float(ds.value_and_grad(loss)(model, x, False)[0]), rel=1e-4)
