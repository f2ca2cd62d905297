"""Tests of threads on TensorFlow's simulated GPUs: each gets the shapes, axes and values of its own operators."""

from __future__ import annotations

import random
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf

import devshim as ds

DEVICES = ["gpu:0", "gpu:1"]
SHAPES = [(), (5,), (2, 3), (1,), (4, 1, 2)]


@pytest.fixture(autouse=True)
def _quick_turns(two_cards):
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def in_threads(body, rounds=60):
    """Call ``body(random numbers)`` many times in each of 16 threads."""

    def work(seed):
        ds.use("tensorflow")
        rng = random.Random(seed)
        for _ in range(rounds):
            body(rng)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(work, range(16)))


def holds(x, expected, device):
    assert (x.shape, x.numpy().shape) == (expected.shape, expected.shape)
    assert np.array_equal(x.numpy(), expected)
    assert ds.device_of(x) is ds.device(device)


def test_native_operators_in_a_scope_keep_their_shapes():
    def body(rng):
        shape, value, device = rng.choice(SHAPES), rng.randrange(99), rng.choice(DEVICES)
        with ds.on(device):
            holds(tf.fill(shape, float(value)), np.full(shape, value), device)
            holds(tf.random.uniform(shape, value, value), np.full(shape, value), device)
            holds(tf.constant(float(value), shape=shape), np.full(shape, value), device)

    in_threads(body)


def test_native_operators_follow_their_own_axes_and_indices():
    def body(rng):
        n, m, device = rng.randrange(1, 6), rng.randrange(1, 6), rng.choice(DEVICES)
        a = np.arange(n * m * 2, dtype="float32").reshape(n, m, 2)
        x, axis, order, rows = ds.from_numpy(a, device), rng.randrange(3), rng.sample(range(3), 3), [rng.randrange(n)]
        for run, expected in [
            (lambda x: tf.reduce_sum(x, axis), a.sum(axis)),
            (lambda x: tf.transpose(x, order), a.transpose(order)),
            (lambda x: tf.gather(x, rows), a[rows]),
            (lambda x: tf.reshape(x, (-1, n)), a.reshape(-1, n)),
            (lambda x: x[rows[0] :], a[rows[0] :]),
            (lambda x: tf.split(x, [rows[0], n - rows[0]])[1], a[rows[0] :]),
            (lambda x: tf.tile(x, (1, n, 1)), np.tile(a, (1, n, 1))),
        ]:
            holds(ds.run(run, x), expected, device)
        assert ds.run(tf.shape, x).numpy().tolist() == [n, m, 2]

    in_threads(body, 20)


def test_gradients_keep_their_shapes():
    """TensorFlow caches a shape of ones for the gradient of a sum, only by rank, on the device where it was made."""

    def body(rng):
        n, device = rng.randrange(1, 6), rng.choice([*DEVICES, "cpu"])
        a = np.arange(n * 3, dtype="float32").reshape(n, 3)
        with ds.on(device):
            v = tf.Variable(a)
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.gather(v, list(range(n))) ** 2)
            holds(tf.convert_to_tensor(tape.gradient(loss, v)), 2 * a, device)

    in_threads(body, 20)


def test_a_shape_made_in_a_gpu_scope_does_not_move_host_tensors():
    with ds.on("gpu:1"):
        shape = tf.constant([1, 1])
    assert ds.device_of(tf.reshape(tf.constant(2.0), shape)) is ds.cpu()
    assert ds.device_of(tf.reshape(ds.ones((1,), device="gpu:0"), shape)) is ds.gpu(0)
    with ds.on("gpu:0"):
        assert ds.device_of(tf.reshape(ds.ones((1,), device="gpu:0"), shape)) is ds.gpu(0)
