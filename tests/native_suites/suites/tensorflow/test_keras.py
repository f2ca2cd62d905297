"""Keras on TensorFlow with two CUDA GPUs: the mirrored strategy with `fit`, and hand-written loops."""

from __future__ import annotations

import os

os.environ["KERAS_BACKEND"] = "tensorflow"

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

SUITE = "programs: Keras 3 on TensorFlow"
TESTED = ("keras", "tensorflow-cpu")
BOTH = tf.distribute.MirroredStrategy()  # one for all: TensorFlow cannot train in two that use the same GPUs


def data(size: int = 64) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(size, 8)).astype(np.float32)
    return x, (x.sum(1) > 0).astype(np.int32)


def net(norm: bool = True) -> keras.Model:
    keras.utils.set_random_seed(0)
    inputs = keras.Input((8,))
    x = keras.layers.Dense(16, "relu")(inputs)
    x = keras.layers.BatchNormalization()(x) if norm else x
    return keras.Model(inputs, keras.layers.Dense(2)(x))


def classifier(norm: bool = True) -> keras.Model:
    model = net(norm)
    model.compile(
        keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"]
    )
    return model


def batches(size: int = 16) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(data()).batch(size).prefetch(tf.data.AUTOTUNE)


def test_the_gpus_are_there() -> None:
    assert len(tf.config.list_physical_devices("GPU")) == 2
    assert len(tf.config.list_logical_devices("GPU")) == 2
    assert tf.test.is_built_with_cuda()
    assert tf.ones(2).device.endswith("GPU:0")
    assert tf.test.gpu_device_name() == "/device:GPU:0"


@pytest.mark.parametrize("replicas", [2, 1])
def test_the_mirrored_strategy_fits(replicas: int) -> None:
    strategy = BOTH if replicas == 2 else tf.distribute.MirroredStrategy(["/gpu:1"])
    assert strategy.num_replicas_in_sync == replicas
    with strategy.scope():
        model = classifier()
    found = model.fit(batches(16 * strategy.num_replicas_in_sync), epochs=3, verbose=0).history["loss"]
    assert found[-1] < found[0]
    assert model.evaluate(batches(), verbose=0, return_dict=True)["loss"] < found[0]
    assert model.predict(batches(), verbose=0).shape == (64, 2)


def test_the_strategy_gives_the_losses_of_one_gpu() -> None:
    alone = classifier(False).fit(batches(), epochs=2, verbose=0).history["loss"]
    with BOTH.scope():
        model = classifier(False)
    np.testing.assert_allclose(model.fit(batches(), epochs=2, verbose=0).history["loss"], alone, rtol=1e-4)


def test_variables_are_mirrored() -> None:
    strategy = BOTH
    with strategy.scope():
        x = tf.Variable(1.0)
    copies = strategy.experimental_local_results(x)
    assert [each.device[-5:] for each in copies] == ["GPU:0", "GPU:1"]


def test_a_checkpoint_is_saved_in_a_strategy_and_loaded(tmp_path: Path) -> None:
    strategy = BOTH
    with strategy.scope():
        model = classifier()
    saved = keras.callbacks.ModelCheckpoint(str(tmp_path / "best.keras"), save_best_only=True, monitor="loss")
    model.fit(batches(), epochs=2, callbacks=[saved], verbose=0)
    with strategy.scope():
        again = keras.models.load_model(tmp_path / "best.keras")
    assert again.evaluate(batches(), verbose=0, return_dict=True)["loss"] > 0
    assert keras.models.load_model(tmp_path / "best.keras").predict(data()[0], verbose=0).shape == (64, 2)


def test_a_loop_of_one_s_own_runs_on_both_gpus() -> None:
    strategy = BOTH
    with strategy.scope():
        model = net(False)
        optimizer = keras.optimizers.SGD(0.1)
        loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    divided = strategy.experimental_distribute_dataset(batches(16))

    def step(row: Any) -> Any:
        x, target = row
        with tf.GradientTape() as tape:
            loss = tf.nn.compute_average_loss(loss_of(target, model(x, training=True)), global_batch_size=16)
        optimizer.apply_gradients(
            zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
        )
        return loss

    @tf.function
    def both(row: Any) -> Any:
        return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(step, args=(row,)), axis=None)

    values = [float(both(row)) for _ in range(3) for row in divided]
    assert values[-1] < values[0]


def test_each_replica_knows_itself() -> None:
    strategy = BOTH

    def number() -> Any:
        return tf.distribute.get_replica_context().replica_id_in_sync_group

    found = strategy.experimental_local_results(strategy.run(number))
    assert [int(each) for each in found] == [0, 1]


@pytest.mark.parametrize("op", ["SUM", "MEAN"])
@pytest.mark.parametrize("cross", ["HierarchicalCopyAllReduce", "ReductionToOneDevice", "NcclAllReduce"])
def test_replicas_reduce(op: str, cross: str) -> None:
    strategy = tf.distribute.MirroredStrategy(cross_device_ops=getattr(tf.distribute, cross)())

    @tf.function
    def run() -> Any:
        def every() -> Any:
            context = tf.distribute.get_replica_context()
            x = tf.cast(context.replica_id_in_sync_group, tf.float32) + 1
            return context.all_reduce(op, x)

        return strategy.experimental_local_results(strategy.run(every))

    assert [float(each) for each in run()] == [3.0 if op == "SUM" else 1.5] * 2


def test_one_device_strategy() -> None:
    with tf.distribute.OneDeviceStrategy("/gpu:1").scope():
        model = classifier()
    found = model.fit(batches(), epochs=2, verbose=0).history["loss"]
    assert found[-1] < found[0]
    assert model.layers[1].kernel.value.device.endswith("GPU:1")


def test_a_model_in_a_scope_of_the_second_gpu() -> None:
    with tf.device("/GPU:1"):
        model = classifier()
        assert model(tf.ones((2, 8))).device.endswith("GPU:1")
        found = model.fit(*data(), epochs=2, verbose=0).history["loss"]
    assert found[-1] < found[0]


def test_a_model_is_divided_over_two_gpus() -> None:
    with tf.device("/GPU:0"):
        first = keras.layers.Dense(4)
        first.build((None, 8))
    with tf.device("/GPU:1"):
        last = keras.layers.Dense(2)
        last.build((None, 4))
    x = tf.ones((3, 8))
    with tf.GradientTape() as tape:
        with tf.device("/GPU:0"):
            hidden = first(x)
        with tf.device("/GPU:1"):
            result = tf.reduce_sum(last(hidden))
    assert result.device.endswith("GPU:1")
    grads = tape.gradient(result, [first.kernel.value, last.kernel.value])
    assert all(each is not None for each in grads)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision(policy: str) -> None:
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        with BOTH.scope():
            model = classifier()
        found = model.fit(batches(), epochs=3, verbose=0).history["loss"]
        assert found[-1] < found[0]
    finally:
        keras.config.set_dtype_policy(before)


def test_layers_of_images_and_sequences_fit() -> None:
    with BOTH.scope():
        model = keras.Sequential(
            [
                keras.layers.Input((8, 8, 1)),
                keras.layers.RandomFlip(),
                keras.layers.Conv2D(4, 3, activation="relu"),
                keras.layers.MaxPooling2D(),
                keras.layers.Reshape((9, 4)),
                keras.layers.LSTM(8),
                keras.layers.Dense(2),
            ]
        )
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    x = np.random.default_rng(0).normal(size=(32, 8, 8, 1)).astype(np.float32)
    rows = tf.data.Dataset.from_tensor_slices((x, data(32)[1])).batch(8)
    found = model.fit(rows, epochs=2, verbose=0).history["loss"]
    assert all(np.isfinite(found))


def test_several_steps_in_an_execution_and_eager_ones() -> None:
    with BOTH.scope():
        model = net()
        model.compile(
            "sgd",
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            run_eagerly=False,
            steps_per_execution=2,
        )
    assert np.isfinite(model.fit(batches(), verbose=0).history["loss"][0])
    alone = net()
    alone.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), run_eagerly=True)
    assert np.isfinite(alone.fit(batches(), verbose=0).history["loss"][0])


def test_a_generator_of_batches_and_a_saved_model(tmp_path: Path) -> None:
    model = classifier()
    model.fit(batches(), verbose=0)
    model.export(str(tmp_path / "exported"), verbose=False)
    again = tf.saved_model.load(str(tmp_path / "exported"))
    np.testing.assert_allclose(again.serve(data()[0]), model.predict(data()[0], verbose=0), rtol=1e-3, atol=1e-4)
