"""Tests of the fast paths of `ds.convert` on MXNet: what they must not take after any history, and must detect."""

from __future__ import annotations

import gc
from importlib import import_module

import numpy as np
import pytest

import devshim as ds
from devshim.interop import convert

mx = ds.framework("mxnet")
dlpack = import_module("devshim_backends._mxnet.dlpack")

PLAIN = np.arange(6, dtype="float32").reshape(2, 3)


@pytest.fixture(autouse=True)
def _fast_paths_are_known(current):
    """Make sure that every fast path is known before the test."""
    for _ in range(2):
        ds.convert(ds.convert(PLAIN, "mxnet"), "numpy")
    ds.convert(mx.nd.array(PLAIN), "numpy")
    assert {(np.ndarray, "mxnet"), (mx.np.ndarray, "numpy"), (mx.nd.NDArray, "numpy")} <= {*convert._FAST_PATHS}


@pytest.mark.parametrize("kind", [mx.nd.NDArray, mx.np.ndarray])
def test_writes_go_through(kind, fast_path_only):
    x = mx.nd.array(PLAIN) if kind is mx.nd.NDArray else mx.np.array(PLAIN)
    a = ds.convert(x, "numpy", copy=False)
    a[0, 0] = 7
    x[0, 1] = 8
    x.wait_to_read()
    assert (a[0, 0], a[0, 1], float(x.asnumpy()[0, 0])) == (7, 8, 7)


def test_writes_go_through_the_other_way(fast_path_only):
    a = PLAIN.copy()
    x = ds.convert(a, "mxnet", copy=False)
    a[0, 0] = 7
    x[0, 1] = 8
    x.wait_to_read()
    assert (x.asnumpy()[0, 0], a[0, 1]) == (7, 8)


def test_memory_outlives_its_first_owner(fast_path_only):
    x, a = ds.convert(PLAIN.copy(), "mxnet"), ds.convert(mx.np.arange(1000.0), "numpy")
    gc.collect()
    [np.full(6, -1, "f4"), mx.np.full((1000,), -1.0)]
    assert x.asnumpy().tolist() == PLAIN.tolist()
    assert a[999] == 999


@pytest.mark.parametrize("view", [lambda x: ds.convert(x, "numpy"), lambda x: ds.to_numpy(x, copy=False)])
def test_numpy_views_survive_a_move_of_the_parameter(fast_path_only, view):
    """Its handle is swapped, and NumPy must not be left with freed memory."""
    x = mx.np.arange(1000.0)
    a = view(x)
    other = mx.np.zeros(1000)
    x.handle, other.handle = other.handle, x.handle
    del other
    mx.nd.waitall()
    [mx.np.full((1000,), -1.0) for _ in range(3)]
    assert a.tolist() == list(range(1000))


def test_pending_work_is_waited_for(fast_path_only):
    x = mx.np.ones((400, 400))
    for _ in range(10):
        y = mx.np.dot(x, x) / 400
    assert (ds.convert(y, "numpy") == 1).all()


UNUSUAL = {
    "bool": lambda: mx.np.array([True, False]),
    "empty": lambda: mx.np.zeros((0, 3)),
    "0-d": lambda: mx.np.array(3.0),
    "float16": lambda: mx.np.ones(3, "float16"),
    "uint8": lambda: mx.np.ones(3, "uint8"),
    "a slice": lambda: mx.np.arange(6.0)[2:4],
    "a gradient's": lambda: _with_gradient(),
}


def _with_gradient():
    x = mx.np.ones(3)
    x.attach_grad()
    return x


@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual_arrays_keep_their_values(name):
    with mx.util.np_shape(True):
        x = UNUSUAL[name]()
        expected = x.asnumpy()
    y = ds.convert(x, "numpy")
    assert (y.dtype, y.shape) == (expected.dtype, expected.shape)
    assert np.array_equal(y, expected)


def test_arrays_on_gpus_and_sparse_arrays_are_not_shared():
    with ds.simulate(gpus=2):
        x = ds.asarray([1.0, 2.0], device=1)
        assert dlpack._describe_plain(x) is None
        with pytest.raises(ds.CopyNeededError):
            ds.convert(x, "numpy", "cpu", copy=False)
        assert ds.convert(x, "numpy", "cpu").tolist() == [1, 2]
    with pytest.raises(ds.CopyNeededError, match="sparse"):
        ds.convert(mx.nd.array([[0.0, 1.0]]).tostype("csr"), "numpy", copy=False)


@pytest.mark.parametrize("dtype", ["bool", "int16", "uint64", "complex64"])
def test_dtypes_that_mxnet_labels_differently_or_lacks(dtype):
    a = np.array([0, 1, 1]).astype(dtype)
    for _ in range(2):
        try:
            x = ds.convert(a, "mxnet")
        except ds.ConversionError:
            assert dtype != "bool"
        else:
            assert ds.to_numpy(x).dtype == dtype
            assert np.array_equal(ds.to_numpy(x), a)


def test_an_import_with_wrong_metadata_takes_the_slow_path(monkeypatch):
    """If dtype, device or shape differ from the lent tensor's, the slow path has the right answer."""
    code, place, shape = dlpack._describe(mx.np.array(PLAIN))
    for wrong in ((code + 1, place, shape), (code, place + (1 << 32), shape), (code, place, (6,))):
        calls = []
        monkeypatch.setattr(dlpack, "_describe", lambda x, wrong=wrong, calls=calls: calls.append(1) or wrong)
        x = ds.convert(PLAIN, "mxnet", copy=False)
        assert calls
        assert ds.to_numpy(x).tolist() == PLAIN.tolist()


@pytest.mark.parametrize("code", "lq")
def test_both_of_numpys_integers_of_64_bits(code):
    """MXNet 1.9 has no entry for the one that NumPy calls longlong."""
    x = ds.from_numpy(np.arange(3, dtype=code))
    assert (np.dtype(x.dtype).name, ds.to_numpy(x).tolist()) == ("int64", [0, 1, 2])
