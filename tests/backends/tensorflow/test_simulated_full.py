"""Tests of a full simulated GPU on TensorFlow, of faults and threads, and that everything is restored."""

from __future__ import annotations

import pickle
import threading

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_memory import rounded, used

import devshim as ds

pytestmark = pytest.mark.usefixtures("two_small_gpus")


def test_native_operators_run_out_of_memory(matrix):
    big = ds.ones((2048, 2048), device="gpu:1")
    kept = [big]
    with ds.on("gpu:1"):
        kept += [big + 1, big + 2]
        with pytest.raises(ds.OutOfMemoryError) as caught:
            big + 3
    assert isinstance(caught.value, tf.errors.ResourceExhaustedError)
    free = ds.memory("gpu:1").free
    assert caught.value.problem == f"gpu:1 is out of memory: {2**24:,} bytes were requested, {free:,} bytes are free"
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again)) == (type(caught.value), str(caught.value))
    del kept[1:], caught
    assert used() - rounded(2**24) == rounded(64 * 64 * 4)


@pytest.mark.parametrize(
    "make",
    [
        lambda: tf.Variable(tf.initializers.Zeros()((8192, 4096))),
        lambda: tf.constant(np.zeros((8192, 4096), "float32")),
        lambda: tf.function(lambda: tf.zeros((8192, 4096)))(),
        lambda: tf.tile(tf.ones((1, 4096)), [8192, 1]),
    ],
)
def test_every_kind_of_allocation_respects_the_limit(make):
    before = used()
    with ds.on("gpu:1"), pytest.raises(tf.errors.ResourceExhaustedError, match="gpu:1 is out of memory: 134,217,728"):
        make()
    assert used() == before


def test_a_refused_tensor_is_freed():
    """A tensor that did not fit is freed immediately: the count and TensorFlow agree."""
    ref = []
    with ds.on("gpu:1"), pytest.raises(ds.OutOfMemoryError) as caught:
        ref.append(tf.ones((8192, 4096)))
    del caught
    assert not ref
    assert used() == 0


def test_keras_names_its_layer_and_keeps_the_error():
    """Keras makes a new error from TensorFlow's arguments, to add the name of the layer."""
    keras = pytest.importorskip("keras")
    with ds.on("gpu:1"), pytest.raises(ds.OutOfMemoryError, match="out of memory") as caught:
        keras.layers.UpSampling2D(64)(tf.ones((1, 64, 64, 4)))
    assert isinstance(caught.value, tf.errors.ResourceExhaustedError)


# ---------------------------------------------------------------------------------------------------- faults, threads
def test_a_fault_reaches_tensorflows_own_operators():
    with ds.simulate(gpus=2, faults=ds.Fault("gpu:1", "allocation", at=2)), ds.on("gpu:1"):
        x = ds.ones((4, 4))
        with pytest.raises(ds.OutOfMemoryError):
            x + x
        assert ds.device_of(x + x) is ds.gpu(1)
    with ds.simulate(gpus=2, faults=ds.Fault("gpu:1", "vanish", at=2)), ds.on("gpu:1"):
        x = ds.ones((4, 4))
        for _ in range(2):
            with pytest.raises(ds.DeviceFailedError):
                x + x


def test_one_creation_is_one_allocation():
    """Shapes and bounds are on the host, as with a real GPU."""
    with ds.simulate(gpus=2, faults=ds.Fault("gpu:1", "allocation", at=6)):
        for make in (
            ds.zeros,
            ds.ones,
            ds.empty,
            ds.arange,
            lambda n, device: ds.random.uniform(2, 3, n, device=device),
        ):
            make(5, device="gpu:1")
        with pytest.raises(ds.OutOfMemoryError):
            ds.eye(5, device="gpu:1")


def test_other_threads_are_counted(matrix):
    kept, before = [], used()
    threads = [threading.Thread(target=lambda: kept.append(matrix + 1)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert used() - before == 4 * rounded(64 * 64 * 4)
    kept.clear()
    assert used() == before


def test_every_hook_is_uninstalled():
    from devshim_backends._tensorflow.simulation import hooks

    def entries():
        return [getattr(owner, name) for owner, name in hooks._ENTRIES]

    assert entries() == list(hooks._WRAPPERS)
    before = used()
    kept = ds.ones((1000,), device="gpu:1")
    with ds.simulate(gpus=0):
        assert entries() != list(hooks._ORIGINALS), "they refuse what was left on the GPU"
        with pytest.raises(ds.SimulationError, match="gpu:1 was removed"):
            kept + kept
    assert entries() == list(hooks._WRAPPERS)
    assert used() - before == 4096
    del kept
    assert used() == before
    with ds.simulate(gpus=0):  # nothing is left there
        assert entries() == list(hooks._ORIGINALS)
    assert entries() == list(hooks._WRAPPERS)


def test_a_host_with_too_little_memory_is_a_full_gpu():
    """TensorFlow's text names the logical CPU; its two ways to run an operator raise different errors."""
    for make in (lambda: tf.zeros((2**44,)), tf.function(lambda: tf.random.normal((2**44,)))):
        with pytest.raises(ds.OutOfMemoryError) as caught, ds.on("gpu:1"):
            make()
        assert isinstance(caught.value, tf.errors.ResourceExhaustedError)
        assert caught.value.problem.startswith(f"gpu:1 is out of memory: {2**46:,} bytes were requested")
        assert "CPU" not in str(caught.value)
    with pytest.raises(tf.errors.ResourceExhaustedError, match="device:CPU:0"), ds.on("cpu"):
        tf.zeros((2**44,))
