"""Tests of the guard on TensorFlow: the implicit transfers between real devices that the device policy reports.

Logical CPUs replace the real devices: the policy distinguishes them, and so do these tests outside of a simulation.
They run in a process without tensors on simulated GPUs: while one is left on a removed GPU, its logical CPU is refused.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from devshim_backends._tensorflow.transfers import operators
from tensorflow.python.eager import context

import devshim as ds

HOST = np.ones((2, 2), "float32")
FIRST, SECOND = "CPU:1", "CPU:2"

pytestmark = pytest.mark.usefixtures("two_cards")


@pytest.fixture
def reports(backend, monkeypatch):
    """Return the list of reports while logical CPUs are treated as real GPUs."""
    names = {FIRST: ds.gpu(0), SECOND: ds.gpu(1)}
    found = []
    with ds.simulate(0):
        named = lambda name: next((device for tail, device in names.items() if name.endswith(tail)), ds.cpu())  # noqa: E731
        monkeypatch.setattr(type(backend), "device_named", lambda self, name: named(name))
        monkeypatch.setattr(type(backend), "device_of", lambda self, x: named(x.backing_device))
        with operators.report_operators(backend, lambda *what: found.append(what)):
            yield found
        monkeypatch.undo()


def on(name, *values):
    with tf.device(name):
        return tf.constant(values or ((1.0, 2.0), (3.0, 4.0)))


def number_on(name):
    with tf.device(name):
        return tf.constant(3.0)


MIXES = {
    "add": (lambda x: x + on(SECOND), [(ds.gpu(1), ds.gpu(0), "AddV2")]),
    "of the host": (lambda x: x - on("CPU:0"), [(ds.cpu(), ds.gpu(0), "Sub")]),
    "numpy": (lambda x: tf.add(x, HOST), []),  # made on the scope's device
    "a list": (
        lambda x: tf.stack([x, on(SECOND), on("CPU:0")]),
        [(ds.gpu(1), ds.gpu(0), "Pack"), (ds.cpu(), ds.gpu(0), "Pack")],
    ),
    "indices": (lambda x: tf.gather(x, on("CPU:0", 0, 1)), []),  # int32 stays on the host
    "wide indices": (lambda x: tf.gather(x, tf.cast(on("CPU:0", 0, 1), tf.int64)), []),
    "a part": (lambda x: x + on(SECOND, 1.0)[0], [(ds.gpu(1), ds.gpu(0), "StridedSlice")]),
    "a number": (lambda x: x + number_on(SECOND), []),
    "an axis": (tf.reduce_sum, []),
    "moved": (lambda x: tf.identity(on(SECOND)), []),
    "written": (lambda x: tf.Variable(x).assign(on(SECOND)), [(ds.gpu(1), ds.gpu(0), "AssignVariableOp")]),
}


@pytest.mark.parametrize("name", MIXES)
def test_copies_by_operators_are_reported_and_made(reports, name):
    mix, expected = MIXES[name]
    x = on(FIRST)
    del reports[:]
    with tf.device(FIRST):
        mix(x)
    assert reports == expected
    assert context.context().device_policy == context.DEVICE_PLACEMENT_SILENT


def test_a_device_policy_set_by_the_user_stays(reports):
    x, y = on(FIRST), on(SECOND)
    tf.config.experimental.set_device_policy("explicit")
    try:
        with tf.device(FIRST), pytest.raises(tf.errors.InvalidArgumentError, match="conflicting"):
            x + y
    finally:
        tf.config.experimental.set_device_policy("silent")
    assert reports == []


def test_other_errors_of_operators_stay_unchanged(reports):
    with tf.device(FIRST), pytest.raises(tf.errors.InvalidArgumentError, match="Matrix size-incompatible"):
        on(FIRST) @ tf.ones((3, 3))
    assert reports == []
