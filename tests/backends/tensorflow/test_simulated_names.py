"""Tests of TensorFlow GPU names on simulated GPUs: refused with the line to write, only while simulating."""

from __future__ import annotations

import threading

import keras
import pytest
import tensorflow as tf

import devshim as ds

SPELLINGS = [
    *("/GPU:1", "gpu:1", "GPU:1", "/device:GPU:1", "/device:gpu:1", "/job:localhost/replica:0/task:0/device:GPU:1"),
    tf.DeviceSpec(device_type="GPU", device_index=1),
]
ALONE = ["/GPU", "gpu", "/device:GPU", "/GPU:*"]


def traced(name):
    @tf.function
    def compute(x):
        with tf.device(name):
            return x + x

    return compute(tf.ones(2))


def scoped(scope):
    with scope:
        return tf.Variable(tf.ones(2))


@pytest.mark.usefixtures("two_cards")
@pytest.mark.parametrize("name", [*SPELLINGS, *ALONE], ids=str)
def test_a_gpu_name_is_refused_and_the_hint_shows_the_fix(name):
    with pytest.raises(ds.DeviceNotFoundError) as caught, tf.device(name):
        pass
    assert f'with ds.on("gpu:{int(name in SPELLINGS)}"):' in str(caught.value)
    assert ds.device_of(tf.ones(2)) is ds.cpu()


@pytest.mark.usefixtures("two_cards")
@pytest.mark.parametrize(
    "compute",
    [
        lambda: traced("/GPU:1"),
        lambda: scoped(keras.device("gpu:1")),
        lambda: scoped(tf.distribute.OneDeviceStrategy("/gpu:0").scope()),
        lambda: scoped(tf.distribute.MirroredStrategy(["/gpu:0", "/gpu:1"]).scope()),
        lambda: scoped(tf.Graph().device("/gpu:0")),
        lambda: list(tf.data.Dataset.range(3).apply(tf.data.experimental.prefetch_to_device("/gpu:0"))),
    ],
    ids=["function", "keras", "one", "mirrored", "graph", "prefetch"],
)
def test_a_gpu_name_is_refused_everywhere(compute):
    with pytest.raises(ds.DeviceNotFoundError, match=r"with ds\.on"):
        compute()


@pytest.mark.usefixtures("two_cards")
def test_a_gpu_name_is_refused_in_threads():
    found = []

    def work():
        try:
            traced("/GPU:1")
        except Exception as error:
            found.append(type(error))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [ds.DeviceNotFoundError]


@pytest.mark.usefixtures("two_cards")
@pytest.mark.parametrize("name", ["/CPU:0", "cpu:0", "", None, "/job:localhost"])
def test_other_device_names_still_work(name):
    with tf.device(name):
        assert ds.device_of(tf.ones(2)) is ds.cpu()
    with ds.on("gpu:1"), tf.device(ds.gpu(0).native()):
        assert ds.device_of(tf.ones(2)) is ds.gpu(0)


def test_gpu_names_are_not_checked_without_simulation():
    from tensorflow.python.eager import context
    from tensorflow.python.framework import ops

    before = context.Context.device, ops.Graph.device
    with ds.using("tensorflow"), ds.simulate(gpus=2):
        ds.zeros(1)
        assert context.Context.device is not before[0]
    assert (context.Context.device, ops.Graph.device) == before
    with tf.device("/GPU:1"):
        assert "CPU:0" in tf.ones(2).device
