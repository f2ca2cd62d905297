"""Tests of `devshim.data_parallel` of models that the conformance kit does not make: modules, and sparse gradients."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import devshim as ds

X = np.arange(20, dtype="float32").reshape(5, 4) / 10


class Net(tf.Module):
    """Variables in a list, in a dict and under two names, and one that is not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = [tf.Variable(tf.ones((4, 3))), tf.Variable(tf.ones((3, 2)) * 0.5)]
        self.more = {"offset": tf.Variable([0.0, 1.0])}
        self.frozen = tf.Variable([1.0, 2.0], trainable=False)
        self.tied = self.weights[0]

    def __call__(self, x: Any) -> Any:
        return (x @ self.weights[0]) @ self.weights[1] * self.frozen + self.more["offset"] + tf.reduce_sum(self.tied)


class Compiled(Net):
    """The same, compiled."""

    @tf.function
    def __call__(self, x: Any) -> Any:
        return super().__call__(x)


def loss_of(call: Any, x: Any) -> Any:
    return ds.run(lambda y: tf.reduce_sum(y**2), call(x))


@pytest.mark.parametrize("home", ["cpu", "gpu:0", "gpu:1"])
@pytest.mark.parametrize("cls", [Net, Compiled])
def test_a_module_gets_the_gradients_of_all_parts(cls: type[Net], home: str) -> None:
    with ds.using("tensorflow"), ds.simulate(2):
        net, x = ds.place(cls(), home), ds.from_numpy(X)
        expected, slopes = ds.value_and_grad(lambda net: loss_of(net, ds.place(x, home)))(net)
        value, grads = ds.value_and_grad(lambda net: loss_of(ds.data_parallel(net, ["gpu:0", "gpu:1"]), x))(net)
        assert float(value) == pytest.approx(float(expected), rel=1e-5)
        assert list(grads) == list(slopes)
        assert len(grads) == 3
        for path, grad in grads.items():
            assert np.allclose(ds.to_numpy(grad), ds.to_numpy(slopes[path]), rtol=1e-5), path
            assert str(ds.device_of(grad)) == home


def test_rows_of_an_embedding_get_their_gradients() -> None:
    with ds.using("tensorflow"), ds.simulate(2):
        net = keras.Sequential([keras.Input((2,)), keras.layers.Embedding(10, 4), keras.layers.Flatten()])
        ids = ds.from_numpy(np.array([[1, 2], [3, 1], [9, 9]]))
        ds.place(net, "gpu:0")
        _, slopes = ds.value_and_grad(lambda net: loss_of(net, ds.place(ids, "gpu:0")))(net)
        _, grads = ds.value_and_grad(lambda net: loss_of(ds.data_parallel(net, ["gpu:0", "gpu:1"]), ids))(net)
        ((path, grad),) = grads.items()
        assert np.allclose(ds.to_numpy(grad), ds.to_numpy(slopes[path]))
        assert np.abs(ds.to_numpy(grad)).sum() > 0


def test_a_module_on_a_gpu_is_copied_outside_of_any_scope() -> None:
    with ds.using("tensorflow"), ds.simulate(2):
        net = ds.place(Net(), "gpu:1")
        copied = ds.copy(net, "gpu:0")
        assert str(ds.device_of(copied.frozen)) == "gpu:0"
        assert copied.frozen.numpy().tolist() == [1, 2]
        assert copied.tied is copied.weights[0]


def test_a_tape_of_the_program_records_parallel() -> None:
    x = tf.constant([1.0, 2.0, 3.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.add_n(ds.parallel([lambda part: tf.reduce_sum(part * part)] * 2, ds.split(x, ["cpu", "cpu"])))
    assert tape.gradient(y, x).numpy().tolist() == [2.0, 4.0, 6.0]
