"""Tests of the fast paths of `ds.convert` on PaddlePaddle: what they must not take after any history."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import devshim as ds
from devshim.interop import convert
from devshim.testing.values import at_offset

paddle = ds.framework("paddle")
interop = pytest.importorskip("devshim_backends._paddle.dlpack")

PLAIN = np.arange(6, dtype="float32").reshape(2, 3)


@pytest.fixture(autouse=True)
def _fast_paths_are_known(current):
    """Make sure that every fast path is known before the test."""
    for _ in range(2):
        ds.convert(ds.convert(PLAIN, "paddle"), "numpy")
    ds.convert(paddle.create_parameter([1], "float32"), "numpy")
    assert (np.ndarray, "paddle") in convert._FAST_PATHS
    assert ((type(paddle.ones([1])), "numpy") in convert._FAST_PATHS) is interop._HAS_VERSIONED_CAPSULES


@pytest.fixture
def no_slow_path_where_there_is_a_fast_one(request):
    if interop._HAS_VERSIONED_CAPSULES:
        request.getfixturevalue("fast_path_only")


def test_writes_go_through(no_slow_path_where_there_is_a_fast_one):
    a = PLAIN.copy()
    x = ds.convert(a, "paddle", copy=False)
    x[0, 0] = 7
    assert a[0, 0] == 7
    b = ds.convert(x, "numpy", copy=False)
    b[0, 1] = 8
    assert (a[0, 1], float(x[0, 1])) == (8, 8)
    assert x.stop_gradient


def test_a_parameter_is_shared_and_stays_one(no_slow_path_where_there_is_a_fast_one):
    x = paddle.nn.Linear(2, 3).weight
    a = ds.convert(x, "numpy", copy=False)
    a[...] = 5
    assert x.numpy().tolist() == [[5] * 3] * 2
    assert not x.stop_gradient


def test_memory_outlives_its_owner(no_slow_path_where_there_is_a_fast_one):
    x, a = ds.convert(PLAIN.copy(), "paddle"), ds.convert(paddle.arange(1000.0), "numpy")
    gc.collect()
    [np.full(6, -1, "f4"), paddle.full([1000], -1.0)]
    assert x.numpy().tolist() == PLAIN.tolist()
    assert a[999] == 999


def _trainable():
    x = paddle.ones([3])
    x.stop_gradient = False
    return x


ODD = {
    "bool": lambda: paddle.to_tensor([True, False]),
    "bfloat16": lambda: paddle.ones([3], "bfloat16"),
    "complex": lambda: paddle.to_tensor([1 + 2j]),
    "transposed": lambda: paddle.arange(6.0).reshape([2, 3]).t(),
    "strided": lambda: paddle.arange(6.0)[::2],
    "empty": lambda: paddle.zeros([0, 3]),
    "0-d": lambda: paddle.to_tensor(3.0),
    "trainable": _trainable,
    "computed": lambda: _trainable() * 2,
    "parameter": lambda: paddle.create_parameter([3], "float32"),
}


@pytest.mark.parametrize("odd", ODD)
def test_unusual_values_are_kept(odd):
    if odd == "bfloat16":
        pytest.importorskip("ml_dtypes", reason="hardware: ml_dtypes is not installed")
    x = ODD[odd]()
    stop_gradient = x.stop_gradient
    expected = x.detach().astype("float32" if odd == "bfloat16" else x.dtype).numpy()
    y = ds.convert(x, "numpy")
    assert type(y) is np.ndarray
    assert y.shape == expected.shape
    assert np.array_equal(y.astype(expected.dtype), expected)
    assert y.flags.writeable
    assert x.stop_gradient is stop_gradient


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64"])
def test_dtypes_that_paddle_cannot_copy_are_refused(dtype):
    for copy in (None, False):
        with pytest.raises(ds.ConversionError, match="has no dtype"):
            ds.convert(PLAIN.astype(dtype), "paddle", copy=copy)


def test_sparse_tensors_are_refused():
    x = paddle.sparse.sparse_coo_tensor([[0], [0]], [1.0], [3, 3])
    with pytest.raises((ds.ConversionError, ds.CopyNeededError, ds.UnsupportedError)):
        ds.convert(x, "numpy", copy=False)


def test_a_wrong_import_takes_the_slow_path(monkeypatch):
    """If dtype, shape or memory differ from the exported tensor's, the slow path has the right answer."""
    true = interop.EagerTensor
    lies = [lambda x: x.astype("float64"), lambda x: x.reshape([-1]), lambda x: x.clone(), lambda x: x.t()]
    for lie in lies:
        calls = []

        def lying(lie=lie, calls=calls, **arguments):
            calls.append(1)  # the slow path, which is next, gets the true values
            return lie(true(**arguments)) if len(calls) == 1 else true(**arguments)

        monkeypatch.setattr(interop, "EagerTensor", lying)
        x = ds.convert(PLAIN, "paddle", copy=False)
        assert calls
        assert (x.dtype, x.shape, x.data_ptr()) == (paddle.float32, [2, 3], PLAIN.ctypes.data)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("shape", [(), (2, 3), (0, 3)])
def test_floats_of_8_bits_are_kept_to_the_bit(name, shape):
    """``x.numpy()`` returns their bytes as int8."""
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="hardware: ml_dtypes is not installed")
    if not hasattr(paddle, name):
        pytest.skip("hardware: this PaddlePaddle has no 8-bit floats")
    a = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(getattr(ml_dtypes, name))
    for copy in (None, True):
        x = ds.convert(a, "paddle", copy=copy)
        assert (x.dtype, tuple(x.shape)) == (getattr(paddle, name), shape)
        assert x.astype("float32").tolist() == a.astype("float32").tolist()
        for back in (ds.convert(x, "numpy", copy=copy), ds.to_numpy(x, copy=False)):
            assert (back.dtype, back.shape, back.tobytes()) == (a.dtype, a.shape, a.tobytes())
    turned = ds.convert(x.T, "numpy") if len(shape) == 2 and a.size else a.T
    assert turned.tobytes() == a.T.tobytes()
    with pytest.raises(ds.CopyNeededError, match="DLPack cannot describe"):
        ds.convert(x, "numpy", copy=False)


@pytest.mark.parametrize("copy", [None, True, False])
def test_more_axes_than_paddle_has_are_refused(copy):
    with pytest.raises(
        (ds.ConversionError, ds.CopyNeededError), match="at most 9 axes, and this array has 10"
    ) as caught:
        ds.convert(np.ones((1,) * 10), "paddle", copy=copy)
    assert caught.value.hint
    assert ds.convert(np.ones((1,) * 9), "paddle", copy=copy).shape == [1] * 9


def test_a_parameter_without_memory_is_refused():
    with paddle.LazyGuard():
        layer = paddle.nn.Linear(2, 3)
    with pytest.raises(ds.UnsupportedError, match="no memory yet") as caught:
        ds.convert(layer.weight, "numpy")
    assert caught.value.hint


def test_memory_that_came_from_paddle_is_released(run_python):
    """Paddle 3.3 frees memory that it took by DLPack under a lock: a chain of two deadlocks."""
    code = """
import numpy as np, devshim as ds
for dtype, cut in (("float32", slice(None)), ("bool", slice(None)), ("float32", slice(None, None, 2))):
    first = ds.convert(np.zeros((4, 4), dtype)[:, cut], "paddle")
    last = ds.convert(ds.convert(first, "numpy"), "paddle")
    del first
    assert last.shape == [4, 4 if cut.step is None else 2], last.shape
    del last
print("released")
"""
    assert run_python("-c", code).split("\n")[-2] == "released"


@pytest.mark.parametrize("part", [lambda x: x, lambda x: x[1:], lambda x: x[::2, ::3], lambda x: x.T])
def test_complex_numbers_that_are_not_aligned_are_copied(part):
    """Paddle's operators on them crash (3.3), including the one that makes strided values contiguous."""
    a = at_offset(np.arange(35).reshape(5, 7) * (1 + 2j), 8)
    x = part(paddle.utils.dlpack.from_dlpack(a.__dlpack__()))
    for made in (ds.convert(x, "paddle", copy=True), ds.convert(x, copy=True)):
        assert np.array_equal((made + made).numpy(), part(a) + part(a))
    assert np.array_equal(ds.to_numpy(x), part(a))
    assert np.array_equal(ds.convert(x, "numpy"), part(a))


def test_complex_numbers_are_read_without_strides(run_python):
    """On simulated GPUs Paddle cannot read strides, and must not be asked for them."""
    code = """
import devshim as ds, numpy as np
ds.simulate(gpus=2)
import paddle
memory = np.zeros(1024, np.uint8)
a = np.ndarray((5, 7), complex, memory.data, -memory.ctypes.data % 64 + 8)
a[...] = np.arange(35).reshape(5, 7) * (1 + 2j)
x = paddle.utils.dlpack.from_dlpack(a.__dlpack__())
y = paddle.utils.dlpack.from_dlpack(a[:, :1].T.__dlpack__())
for each, values in ((x, a), (y, a[:, :1].T)):
    print(np.array_equal(ds.convert(each, "numpy", copy=True), values))
"""
    assert run_python("-c", code).split()[-2:] == ["True", "True"]
