"""Tests of the fast paths of `ds.convert` on TensorFlow: what they must not take after any history, and must detect."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import tensorflow as tf
from devshim_backends._tensorflow import dlpack as interop
from programs import run_program

import devshim as ds
from devshim.interop import convert
from devshim.testing.values import at_offset

PLAIN = at_offset(np.arange(6, dtype="float32").reshape(2, 3), 0)


@pytest.fixture(autouse=True)
def _fast_paths_are_known(current):
    """Make sure that every fast path is known before the test."""
    for _ in range(2):
        ds.convert(ds.convert(PLAIN, "tensorflow"), "numpy")
    assert len({*convert._FAST_PATHS} & {(np.ndarray, "tensorflow"), (type(tf.zeros(1)), "numpy")}) == 2


def test_shared_memory_shows_writes_and_is_read_only_in_numpy(fast_path_only):
    a = at_offset(PLAIN, 0)
    x = ds.convert(a, "tensorflow", copy=False)
    a[0, 0] = 7
    assert float(x[0, 0]) == 7
    b = ds.convert(x, "numpy", copy=False)
    assert b.ctypes.data == a.ctypes.data
    with pytest.raises(ValueError, match="read-only"):
        b[...] = 1


def test_shared_memory_outlives_its_owner(fast_path_only):
    x, a = ds.convert(at_offset(PLAIN, 0), "tensorflow"), ds.convert(tf.range(1000.0), "numpy")
    gc.collect()
    [np.full(100, -1, "f4"), tf.fill((1000,), -1.0)]
    assert x.numpy().tolist() == PLAIN.tolist()
    assert a[999] == 999


def test_unaligned_memory_is_never_shared():
    """An operator that read it would crash."""
    raw = at_offset(np.arange(20, dtype="float32"), 0)
    for start in range(1, 5):
        x = ds.convert(raw[start:], "tensorflow")
        assert float(tf.reduce_sum(x)) == raw[start:].sum()
        with pytest.raises(ds.CopyNeededError, match="aligned"):
            ds.convert(raw[start:], "tensorflow", copy=False)


ODD = {
    "0-d": lambda: tf.constant(3.0),
    "empty": lambda: tf.zeros((0, 3)),
    "bool": lambda: tf.constant([True, False]),
    "bfloat16": lambda: tf.ones(3, tf.bfloat16),
    "int32": lambda: tf.range(4),
    "variable": lambda: tf.Variable([1.0, 2.0]),
}


@pytest.mark.parametrize("odd", ODD)
def test_unusual_tensors_keep_their_values(odd):
    x = ODD[odd]()
    y = ds.convert(x, "numpy")
    assert type(y) is np.ndarray
    assert (y.dtype, y.shape) == (x.numpy().dtype, tuple(x.shape))
    assert np.array_equal(y, x.numpy())
    assert not y.flags.writeable


@pytest.mark.parametrize("text", [["a"], []])
def test_text_is_refused_without_a_crash(text):
    for target in ("numpy",):
        with pytest.raises((ds.ConversionError, ds.CopyNeededError)):
            ds.convert(tf.constant(text, tf.string), target, copy=False)


def test_an_assignment_to_a_variable_does_not_change_a_view():
    x = tf.Variable([1.0, 2.0])
    y = ds.convert(x, "numpy")
    z = ds.convert(x.read_value(), "numpy")
    x.assign([3.0, 4.0])
    assert (y.tolist(), z.tolist()) == ([1, 2], [1, 2])


def test_a_refusal_before_the_start_of_tensorflow_is_harmless():
    """The fast path is known from then on, and TensorFlow crashes if it is given a missing context."""
    code = """
import numpy as np, devshim as ds
try:
    ds.convert(np.array([None]), "tensorflow")
except ds.ConversionError:
    memory = np.zeros(128, np.uint8)
    start = -memory.ctypes.data % 64
    print(ds.convert(memory[start : start + 3], "tensorflow").numpy())
"""
    assert run_program(code) == "[0 0 0]\n"


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "bfloat16", "int4"])
@pytest.mark.parametrize("shape", [(), (2, 3), (0, 3)])
def test_narrow_dtypes_keep_every_bit(name, shape):
    """This also holds under a guard, where Python buffers cannot report that they do not know this dtype."""
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="hardware: ml_dtypes is not installed")
    a = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(getattr(ml_dtypes, name))
    with ds.guard("error"):
        for copy in (None, True):
            x = ds.convert(a, "tensorflow", copy=copy)
            assert (x.dtype.name, x.shape) == (name, shape)
            back = ds.convert(x, "numpy")
            assert (back.dtype, back.tobytes()) == (a.dtype, a.tobytes())
        with tf.device("/CPU:0"):
            seen = ds.to_numpy(x, copy=False)
    assert (seen.dtype, seen.shape, seen.tobytes()) == (a.dtype, a.shape, a.tobytes())
    assert not seen.flags.writeable


def test_inside_a_compiled_function():
    @tf.function
    def inside(v):
        with pytest.raises(ds.TracingError):
            ds.convert(v, "numpy")
        return v + ds.convert(PLAIN, "tensorflow")

    assert np.array_equal(inside(tf.zeros((2, 3))), PLAIN)


def test_in_the_scope_of_another_device_it_is_on_the_host():
    with tf.device("/CPU:0"):
        assert ds.device_of(ds.convert(PLAIN, "tensorflow", copy=False)) is ds.cpu()


def test_an_import_that_changes_values_is_detected(monkeypatch):
    """If dtype or shape differ from the lent tensor's, the slow path has the right answer."""
    true = interop.TFE_FromDlpackCapsule
    for lie in (lambda x: tf.cast(x, tf.float64), lambda x: tf.reshape(x, -1), lambda x: None):
        reported = []
        monkeypatch.setattr(
            interop,
            "TFE_FromDlpackCapsule",
            lambda c, handle, lie=lie, reported=reported: reported.append(1) or lie(true(c, handle)),
        )
        x = ds.convert(PLAIN, "tensorflow", copy=False)
        assert reported
        assert (x.dtype, x.shape) == (tf.float32, (2, 3))
        assert np.array_equal(x, PLAIN)


def test_a_wrong_view_is_detected(monkeypatch):
    x = tf.reshape(tf.range(6.0), (2, 3))
    right = x.numpy()
    for lie in (lambda a: a.astype("f8"), lambda a: a.reshape(-1), lambda a: a.view(np.matrix)):

        class Lying:
            """A tensor whose view is wrong."""

            def __init__(self, lie):
                self._lie = lie

            def __getattr__(self, name):
                return getattr(x, name)

            def _numpy_internal(self):
                return self._lie(right)

        assert interop._fast_view(Lying(lie)) is None
    assert interop._fast_view(x) is not None
