"""Tests of the fast paths of `ds.convert` on MXNet: what they must not take, whatever came before, and must detect."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import devshim as ds
from devshim.interop import convert

if "mxnet" not in ds.backends():
    pytest.skip("MXNet is not installed", allow_module_level=True)

mx = ds.framework("mxnet")
interop = pytest.importorskip("devshim_backends._mxnet.dlpack")
tensors = pytest.importorskip("devshim_backends._mxnet.tensors")

PLAIN = np.arange(6, dtype="float32").reshape(2, 3)


@pytest.fixture(autouse=True)
def _learned():
    """Make sure that every fast path is known before the test."""
    ds.use("mxnet")
    for _ in range(2):
        ds.convert(ds.convert(PLAIN, "mxnet"), "numpy")
    ds.convert(mx.nd.array(PLAIN), "numpy")
    assert {(np.ndarray, "mxnet"), (mx.np.ndarray, "numpy"), (mx.nd.NDArray, "numpy")} <= {*convert._FAST_PATHS}
    yield
    ds.use(None)


@pytest.mark.parametrize("kind", [mx.nd.NDArray, mx.np.ndarray])
def test_writes_go_through(kind, no_long_way):
    x = mx.nd.array(PLAIN) if kind is mx.nd.NDArray else mx.np.array(PLAIN)
    a = ds.convert(x, "numpy", copy=False)
    a[0, 0] = 7
    x[0, 1] = 8
    x.wait_to_read()
    assert (a[0, 0], a[0, 1], float(x.asnumpy()[0, 0])) == (7, 8, 7)


def test_writes_go_through_the_other_way(no_long_way):
    a = PLAIN.copy()
    x = ds.convert(a, "mxnet", copy=False)
    a[0, 0] = 7
    x[0, 1] = 8
    x.wait_to_read()
    assert (x.asnumpy()[0, 0], a[0, 1]) == (7, 8)


def test_memory_outlives_whoever_lent_it(no_long_way):
    x, a = ds.convert(PLAIN.copy(), "mxnet"), ds.convert(mx.np.arange(1000.0), "numpy")
    gc.collect()
    [np.full(6, -1, "f4"), mx.np.full((1000,), -1.0)]
    assert x.asnumpy().tolist() == PLAIN.tolist()
    assert a[999] == 999


@pytest.mark.parametrize("view", [lambda x: ds.convert(x, "numpy"), lambda x: ds.to_numpy(x, copy=False)])
def test_a_parameter_that_moves_leaves_its_memory_to_numpy(no_long_way, view):
    """Its handle is swapped, and NumPy must not be left with freed memory."""
    x = mx.np.arange(1000.0)
    a = view(x)
    other = mx.np.zeros(1000)
    x.handle, other.handle = other.handle, x.handle
    del other
    mx.nd.waitall()
    [mx.np.full((1000,), -1.0) for _ in range(3)]
    assert a.tolist() == list(range(1000))


def test_work_under_way_is_waited_for(no_long_way):
    x = mx.np.ones((400, 400))
    for _ in range(10):
        y = mx.np.dot(x, x) / 400
    assert (ds.convert(y, "numpy") == 1).all()


ODD = {
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


@pytest.mark.parametrize("odd", ODD)
def test_values_are_kept_whatever_is_odd(odd):
    with mx.util.np_shape(True):
        x = ODD[odd]()
        expected = x.asnumpy()
    y = ds.convert(x, "numpy")
    assert (y.dtype, y.shape) == (expected.dtype, expected.shape)
    assert np.array_equal(y, expected)


def test_arrays_on_cards_and_sparse_ones_are_not_lent():
    with ds.simulate(gpus=2):
        x = ds.asarray([1.0, 2.0], device=1)
        assert interop._describe_plain(x) is None
        with pytest.raises(ds.CopyNeededError):
            ds.convert(x, "numpy", "cpu", copy=False)
        assert ds.convert(x, "numpy", "cpu").tolist() == [1, 2]
    with pytest.raises(ds.CopyNeededError, match="sparse"):
        ds.convert(mx.nd.array([[0.0, 1.0]]).tostype("csr"), "numpy", copy=False)


@pytest.mark.parametrize("dtype", ["bool", "int16", "uint64", "complex64"])
def test_dtypes_that_mxnet_reads_otherwise_or_not_at_all(dtype):
    a = np.array([0, 1, 1]).astype(dtype)
    for _ in range(2):
        try:
            x = ds.convert(a, "mxnet")
        except ds.ConversionError:
            assert dtype != "bool"
        else:
            assert ds.to_numpy(x).dtype == dtype
            assert np.array_equal(ds.to_numpy(x), a)


def test_an_import_that_changes_something_is_not_believed(monkeypatch):
    """If dtype, device or shape differ from what was lent, the slow path has the right answer."""
    code, place, shape = interop._describe(mx.np.array(PLAIN))
    for lie in ((code + 1, place, shape), (code, place + (1 << 32), shape), (code, place, (6,))):
        told = []
        monkeypatch.setattr(interop, "_describe", lambda x, lie=lie, told=told: told.append(1) or lie)
        x = ds.convert(PLAIN, "mxnet", copy=False)
        assert told
        assert ds.to_numpy(x).tolist() == PLAIN.tolist()
