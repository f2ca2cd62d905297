"""Tests of the scope of `ds.run` and `ds.value_and_grad` on TensorFlow's simulated GPUs: operators follow tensors."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

import devshim as ds

pytestmark = pytest.mark.usefixtures("two_cards")


def matrix(device):
    return ds.from_numpy(np.arange(1, 5, dtype=np.float32).reshape(2, 2), device)


def in_run(compute, device="gpu:0"):
    """Compute with a matrix of gpu:1 in the scope of `ds.run` on a device."""
    x = matrix("gpu:1")
    return ds.run(lambda _: compute(x), matrix(device))


@pytest.mark.parametrize("device", ["cpu", "gpu:0", "gpu:1"])
def test_the_name_of_a_scope_is_not_freed(device):
    """TensorFlow keeps numbers by the address of their device's name (2.21): a later name must not get its memory."""
    names = [ds.run(lambda _: context.context().device_name, matrix(device)) for _ in range(2)]
    assert names[0] is names[1]


def label(x):
    """Return one-hot labels on the GPU of a tensor."""
    return tf.cast(x > 2, tf.float32)


def class_of(x):
    return tf.cast(tf.argmax(x, 1), tf.int32)


STAYS = {
    "huber": lambda x: keras.losses.huber(label(x), x),
    "Huber": lambda x: keras.losses.Huber()(label(x), x),
    "mean squared error": lambda x: keras.losses.MeanSquaredError()(label(x), x),
    "binary cross entropy": lambda x: keras.losses.BinaryCrossentropy(from_logits=True)(label(x), x),
    "sparse cross entropy": lambda x: keras.losses.SparseCategoricalCrossentropy(from_logits=True)(class_of(x), x),
    "log cosh": lambda x: keras.losses.log_cosh(label(x), x),
    "hinge": lambda x: keras.losses.hinge(label(x), x),
    "layer normalization": lambda x: keras.layers.LayerNormalization(center=False, scale=False)(x),
    "dropout": lambda x: tf.nn.experimental.stateless_dropout(x, 0.5, [1, 2]),
    "clip_by_norm": lambda x: tf.clip_by_norm(x, 1.0),
    "clip_by_global_norm": lambda x: tf.clip_by_global_norm([x], 1.0)[0][0],
    "a number computed from a shape": lambda x: x / tf.sqrt(tf.cast(tf.shape(x)[-1], tf.float32)),
    "a number computed from numbers": lambda x: x * (tf.constant(2.0) * tf.constant(3.0)),
    "zeros": lambda x: x + tf.zeros([2, 2]),
    "a draw": lambda x: x + tf.random.stateless_normal([2, 2], [1, 2]),
    "a range": lambda x: x * tf.cast(tf.range(2), tf.float32),
    "a constant": lambda x: x * tf.constant([1.0, 2.0]),
    "a mask": lambda x: x + (1.0 - tf.linalg.band_part(tf.ones((2, 2)), -1, 0)) * -1e9,
    "identity": tf.identity,
    "custom gradient": tf.nn.silu,
    "constant in TensorFlow's code": lambda x: tf.nn.gelu(x, approximate=True),
    "one_hot": lambda x: tf.one_hot(tf.argmax(x, 1), 2),
    "int32": lambda x: tf.cast(x, tf.int32) + 1,
    "int32 indices": lambda x: tf.one_hot(tf.argmax(x, 1, output_type=tf.int32), 2),
    "int64 shape": lambda x: tf.reshape(x, tf.constant([4], tf.int64)),
    "shape of NumPy": lambda x: tf.reshape(x, np.array([4])),
    "int64 axis": lambda x: tf.reduce_sum(x, tf.constant([0], tf.int64)),
    "int64 bounds": lambda x: tf.slice(x, tf.constant([0, 0], tf.int64), tf.constant([1, 2], tf.int64)),
}


@pytest.mark.parametrize("device", ["cpu", "gpu:0"])
@pytest.mark.parametrize("name", STAYS)
def test_a_tensor_stays_on_the_gpu_where_the_function_placed_it(name, device):
    expected = STAYS[name](matrix("cpu"))
    found = in_run(STAYS[name], device)
    assert ds.device_of(found) is ds.gpu(1)
    np.testing.assert_allclose(ds.to_numpy(found), ds.to_numpy(expected), rtol=1e-6)


def native_scope(index):
    return tf.device(ds.ones(1, device=f"gpu:{index}").backing_device)


@pytest.mark.parametrize("scope", [lambda: ds.on("gpu:0"), lambda: native_scope(0)], ids=["on", "tf.device"])
def test_a_scope_of_the_same_device_keeps_its_rule(scope):
    """A scope that the function opens is not that of `ds.run`, although its device is the same."""

    def compute(x):
        with scope():
            with pytest.raises(ds.DeviceMismatchError, match="the scope is gpu:0"):
                x * 2
            there = tf.identity(x)
        return there, x * 2

    assert [str(ds.device_of(each)) for each in in_run(compute)] == ["gpu:0", "gpu:1"]


def test_place_moves_a_tensor_to_the_device_of_run():
    places = ("gpu:0", "cpu", "gpu:1")
    assert [str(ds.device_of(in_run(lambda x, to=each: ds.place(x, to)))) for each in places] == list(places)


def constant_in_scope():
    with native_scope(0):
        return tf.constant(3.0)


@pytest.mark.parametrize(
    "number",
    [constant_in_scope, lambda: ds.full((), 3.0, device="gpu:0"), lambda: ds.asarray(3.0)],
    ids=["tf.device", "full", "asarray"],
)
def test_a_number_on_a_chosen_gpu_does_not_follow(number):
    with pytest.raises(ds.DeviceMismatchError, match=r"input 0 is on gpu:0, input 1 is on gpu:1"):
        in_run(lambda x: number() * x)


@pytest.mark.parametrize("name", STAYS.keys() - {"int32", "int32 indices", "one_hot"})
def test_a_gradient_flows_to_the_gpu_where_the_function_placed_a_tensor(name):
    loss = ds.value_and_grad(lambda w: tf.reduce_sum(STAYS[name](ds.place(w, "gpu:1"))))
    (value, grad), (expected, slope) = loss(matrix("gpu:0")), loss(matrix("gpu:1"))
    assert [ds.device_of(each) for each in (value, grad)] == [ds.gpu(1), ds.gpu(0)]
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    np.testing.assert_allclose(ds.to_numpy(grad), ds.to_numpy(slope), rtol=1e-6)


@pytest.mark.parametrize("number", ["tf.constant(3.0)", "tf.zeros([2, 2])", "tf.random.normal([2, 2])"])
def test_a_tensor_that_a_scope_inside_the_function_made_does_not_follow(number):
    def compute(x):
        with native_scope(0):
            made = eval(number)
        return made * x

    with pytest.raises(ds.DeviceMismatchError):
        in_run(compute)


@pytest.mark.parametrize(
    "function",
    [
        tf.reduce_sum,
        tf.random.shuffle,
        lambda y: tf.cast(tf.random.categorical(y, 2), tf.float32),
        lambda y: tf.random.poisson([], y),
        lambda y: tf.random.stateless_gamma([2, 2], [1, 2], alpha=y),
    ],
    ids=["sum", "shuffle", "categorical", "poisson", "stateless_gamma"],
)
def test_a_result_computed_from_a_tensor_does_not_follow(function):
    with pytest.raises(ds.DeviceMismatchError):
        in_run(lambda x: x * function(matrix("gpu:0")))


def test_a_number_of_another_run_is_on_its_gpu():
    number = in_run(lambda _: tf.constant(3.0), "gpu:1")
    assert ds.device_of(number) is ds.gpu(1)
    assert ds.device_of(in_run(lambda _: number * number)) is ds.gpu(1)
    with pytest.raises(ds.DeviceMismatchError):
        in_run(lambda _: number * matrix("gpu:0"))


def test_tensors_of_several_gpus_are_refused():
    with pytest.raises(ds.DeviceMismatchError):
        in_run(lambda x: x * matrix("gpu:0"))
