"""Tests of training on TensorFlow's simulated GPUs: on which device everything is, and how much memory it takes."""

from __future__ import annotations

import gc

import keras
import numpy as np
import pytest
import tensorflow as tf

import devshim as ds

CARD = ds.gpu(1)
RNG = np.random.default_rng(0)
INPUTS = RNG.standard_normal((8, 8, 8, 1)).astype("float32")
LABELS = RNG.integers(0, 4, 8)

pytestmark = pytest.mark.usefixtures("two_small_gpus")


def model():
    keras.utils.set_random_seed(0)
    layers = keras.layers
    return keras.Sequential(
        [
            layers.Conv2D(4, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.Flatten(),
            layers.Dropout(0.5, seed=1),
            layers.Dense(4),
        ]
    )


def fitted(device, eagerly):
    with ds.on(device):
        net = model()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        net.compile(keras.optimizers.Adam(0.01), loss, run_eagerly=eagerly)
        net.fit(INPUTS, LABELS, batch_size=4, epochs=2, verbose=0, shuffle=False)
    return net


def taken(variables):
    return sum(-(-int(np.prod(v.shape)) * 4 // 512) * 512 for v in variables)


@pytest.mark.parametrize("eagerly", [False, True], ids=["compiled", "eager"])
def test_keras_trains_on_a_simulated_gpu_as_on_the_cpu(eagerly):
    """With `fit` in a scope, variables and slots are there, take the expected memory, and get the same values."""
    gc.collect()
    before, elsewhere = ds.memory(CARD).used, ds.memory("gpu:0").used
    there, here = fitted(CARD, eagerly), fitted("cpu", eagerly)
    for found, expected in zip(there.get_weights(), here.get_weights(), strict=True):
        assert np.abs(found - expected).max() <= 1e-5 * max(1, np.abs(expected).max())
    for v in (*there.variables, *there.optimizer.variables):
        assert ds.device_of(v) is CARD, v.path
    gc.collect()
    least = taken((*there.variables, *there.optimizer.variables))
    assert least <= ds.memory(CARD).used - before <= least + 4096  # what `fit` keeps of the last batch and the losses
    assert ds.memory("gpu:0").used == elsewhere


def test_a_custom_loop_has_variables_and_slots_on_the_gpu():
    """Without Keras: Adam by hand, compiled and not, on the GPU and on the CPU."""

    def trained(device, compiled):
        with ds.on(device):
            w = tf.Variable(tf.ones((4, 3)))
            m, v = tf.Variable(tf.zeros_like(w)), tf.Variable(tf.zeros_like(w))
            x, y = (
                ds.from_numpy(INPUTS.reshape(8, 64)[:, :4], device),
                ds.from_numpy(INPUTS.reshape(8, 64)[:, 4:7], device),
            )

            def step(t):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean((x @ w - y) ** 2)
                gradient = tape.gradient(loss, w)
                m.assign(0.9 * m + 0.1 * gradient)
                v.assign(0.999 * v + 0.001 * gradient**2)
                w.assign_sub(0.1 * (m / (1 - 0.9**t)) / (tf.sqrt(v / (1 - 0.999**t)) + 1e-8))
                return loss

            step = tf.function(step) if compiled else step
            losses = [step(tf.constant(float(t))) for t in (1, 2, 3)]
            assert {ds.device_of(each) for each in (w, m, v, *losses)} == {device}
            return w.numpy()

    expected = trained(ds.cpu(), False)
    for compiled in (False, True):
        assert np.allclose(trained(CARD, compiled), expected, rtol=1e-5)


def test_training_frees_its_memory():
    """After the first training, which leaves one constant on the device: TensorFlow keeps the shapes of gradients."""

    def train():
        with ds.on(CARD):
            net, optimizer = model(), keras.optimizers.SGD(0.1)
            x = ds.from_numpy(INPUTS, CARD)
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(net(x, training=True))
            optimizer.apply(tape.gradient(loss, net.trainable_variables), net.trainable_variables)
        return ds.memory(CARD)

    def used_after():
        gc.collect()
        return ds.memory(CARD).used

    before = used_after()
    train()
    kept = used_after()
    assert kept - before <= 512
    during = train()
    assert during.peak > during.used > kept
    assert used_after() == kept


def test_recurrent_and_attention_layers_work():
    with ds.on(CARD):
        x = tf.random.normal((2, 5, 8))
        for layer in (keras.layers.LSTM(4), keras.layers.GRU(4), keras.layers.Bidirectional(keras.layers.LSTM(2))):
            assert ds.device_of(layer(x)) is CARD
        assert ds.device_of(keras.layers.MultiHeadAttention(2, 4)(x, x)) is CARD
        assert ds.device_of(keras.layers.Embedding(10, 4)(tf.constant([[1, 2]]))) is CARD


def test_a_dataset_stays_on_the_host_until_it_is_placed():
    dataset = tf.data.Dataset.from_tensor_slices(np.ones((8, 4), "float32")).batch(4)
    with ds.on(CARD):
        layer = keras.layers.Dense(2)
        for batch in dataset:
            assert ds.device_of(batch) is ds.cpu()
            assert ds.device_of(layer(ds.place(batch, CARD))) is CARD
        with pytest.raises(ds.DeviceMismatchError, match="Dense"):
            layer(batch)


def test_replicas_of_a_strategy_are_on_simulated_gpus():
    """TensorFlow's own strategy disables the policy where it copies on purpose."""
    names = [ds.gpu(i).native().to_string() for i in range(2)]
    strategy = tf.distribute.MirroredStrategy(names)
    with strategy.scope():
        v = tf.Variable(tf.ones((4,)))
    total = strategy.reduce("sum", strategy.run(lambda: v * 2), axis=None)
    assert total.numpy().tolist() == [4.0] * 4
    assert [ds.device_of(each) for each in v.values] == [ds.gpu(0), ds.gpu(1)]
