"""Keras' data parallelism on its JAX backend, for two CUDA GPUs."""

from __future__ import annotations

import os

os.environ["KERAS_BACKEND"] = "jax"

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np
import pytest

SUITE = "programs: Keras 3 on JAX"
TESTED = ("keras", "jax")
GPUS = jax.devices("gpu")


@pytest.fixture(autouse=True)
def no_distribution() -> Iterator[None]:
    yield
    keras.distribution.set_distribution(None)
    keras.backend.clear_session()


def data() -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)
    return x, (x.sum(1) > 0).astype(np.int32)


def classifier() -> keras.Model:
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.layers.Input((8,)),
            keras.layers.Dense(16, "relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.1),
            keras.layers.Dense(2),
        ]
    )
    model.compile(
        "adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"], jit_compile=True
    )
    return model


def test_the_devices_are_listed() -> None:
    assert keras.distribution.list_devices("gpu") == ["gpu:0", "gpu:1"]
    assert keras.distribution.list_devices() == ["gpu:0", "gpu:1"]


def test_a_model_fits_on_the_first_gpu() -> None:
    model = classifier()
    found = model.fit(*data(), epochs=3, batch_size=16, verbose=0).history["loss"]
    assert found[-1] < found[0]
    assert model.layers[0].kernel.value.devices() == {GPUS[0]}
    assert model.predict(data()[0], verbose=0).shape == (64, 2)


@pytest.mark.parametrize("devices", [None, ["gpu:0", "gpu:1"], ["gpu:1"]], ids=str)
def test_data_parallelism_uses_the_gpus(devices: Any) -> None:
    distribution = keras.distribution.DataParallel(devices=devices)
    keras.distribution.set_distribution(distribution)
    model = classifier()
    expected = {GPUS[int(each[-1])] for each in devices or ["gpu:0", "gpu:1"]}
    assert model.layers[0].kernel.value.devices() == expected
    found = model.fit(*data(), epochs=3, batch_size=16, verbose=0).history["loss"]
    assert found[-1] < found[0]
    assert model.evaluate(*data(), batch_size=16, verbose=0, return_dict=True)["loss"] < found[0]
    assert model.predict(data()[0], batch_size=16, verbose=0).shape == (64, 2)


def test_data_parallelism_gives_the_losses_of_one_gpu() -> None:
    def losses() -> list[float]:
        keras.utils.set_random_seed(0)
        model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(2)])
        model.compile(keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model.fit(*data(), epochs=3, batch_size=16, shuffle=False, verbose=0).history["loss"]

    alone = losses()
    keras.distribution.set_distribution(keras.distribution.DataParallel())
    np.testing.assert_allclose(losses(), alone, rtol=1e-4)


def test_model_parallelism_divides_the_weights() -> None:
    mesh = keras.distribution.DeviceMesh((1, 2), ["batch", "model"], keras.distribution.list_devices())
    layout = keras.distribution.LayoutMap(mesh)
    layout[".*hidden.*kernel"] = (None, "model")
    keras.distribution.set_distribution(keras.distribution.ModelParallel(layout_map=layout, batch_dim_name="batch"))
    model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(16, name="hidden"), keras.layers.Dense(2)])
    kernel = model.layers[0].kernel.value
    assert kernel.devices() == set(GPUS)
    assert kernel.addressable_shards[0].data.shape == (8, 8)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    found = model.fit(*data(), epochs=2, batch_size=16, verbose=0).history["loss"]
    assert found[-1] < found[0]


def test_a_custom_loop_of_stateless_calls_trains() -> None:
    model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(2)])
    optimizer = keras.optimizers.Adam(1e-2)
    optimizer.build(model.trainable_variables)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    over = jax.sharding.NamedSharding(jax.make_mesh((2,), ("batch",)), jax.sharding.PartitionSpec("batch"))

    def loss(trainable: Any, rest: Any, x: Any, target: Any) -> Any:
        scores, rest = model.stateless_call(trainable, rest, x)
        return loss_of(target, scores), rest

    @jax.jit
    def step(state: Any, x: Any, target: Any) -> Any:
        trainable, rest, slots = state
        (value, rest), grads = jax.value_and_grad(loss, has_aux=True)(trainable, rest, x, target)
        trainable, slots = optimizer.stateless_apply(slots, grads, trainable)
        return value, (trainable, rest, slots)

    whole = jax.sharding.NamedSharding(over.mesh, jax.sharding.PartitionSpec())
    state = jax.device_put(
        tuple(
            [each.value for each in part]
            for part in (model.trainable_variables, model.non_trainable_variables, optimizer.variables)
        ),
        whole,
    )
    x, target = jax.device_put(data(), over)
    values = []
    for _ in range(6):
        value, state = step(state, x, target)
        values.append(float(value))
    assert values[-1] < values[0]


def test_a_scope_chooses_the_device() -> None:
    with keras.device("gpu:1"):
        assert keras.ops.ones((2,)).devices() == {GPUS[1]}
        assert keras.Variable(np.ones(2)).value.devices() == {GPUS[1]}
    with keras.device("cpu:0"):
        assert keras.ops.ones((2,)).device.platform == "cpu"


def test_a_model_is_saved_and_loaded(tmp_path: Path) -> None:
    keras.distribution.set_distribution(keras.distribution.DataParallel())
    model = classifier()
    model.fit(*data(), batch_size=16, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert again.layers[0].kernel.value.devices() == set(GPUS)
    np.testing.assert_allclose(
        again.predict(data()[0], verbose=0), model.predict(data()[0], verbose=0), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision(policy: str) -> None:
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        model = classifier()
        found = model.fit(*data(), epochs=3, batch_size=16, verbose=0).history["loss"]
        assert found[-1] < found[0]
    finally:
        keras.config.set_dtype_policy(before)
