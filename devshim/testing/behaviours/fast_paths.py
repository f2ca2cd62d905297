"""Tests of the fast paths of new tensors and of `to_numpy`: each setting acts on the call after it changed.

Each test makes a tensor on the fast path first, changes one thing, and makes another one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import devshim as ds
from devshim.testing.behaviours.subprocess import SubprocessKit
from devshim.testing.values import feature

if TYPE_CHECKING:
    from devshim.devices.device import Device

NEW: dict[str, Callable[..., Any]] = {
    "ones": lambda **options: ds.ones((2, 3), **options),
    "full": lambda **options: ds.full((2, 3), 7.0, **options),
    "asarray": lambda **options: ds.asarray([1.0, 2.0], **options),
    "uniform": lambda **options: ds.random.uniform(size=(2, 3), **options),
    "normal": lambda **options: ds.random.normal(size=(2, 3), **options),
}
HOST_ONLY = """
import warnings
import numpy as np
from devshim.registry import registry
warnings.simplefilter("error", RuntimeWarning)
ds.use(name)
ds.ones(1)

def same(call, *args, **options):
    x = call(*args, **options)
    with ds.transfers():  # nothing takes a fast path while a ledger is open
        y = call(*args, **options)
    assert ds.device_of(x) is ds.cpu(), (call, args)
    found, other = ds.to_numpy(x), ds.to_numpy(y)
    assert (type(x), ds.dtype_of(x), found.shape) == (type(y), ds.dtype_of(y), other.shape), (call, args, x, y)
    return found, other

for values in (2.0, 3, True, [1, 2], [1.5, 2], [True], [], [[1, 2], [3, 4]], -(2**31), 2**31 - 1, float("inf")):
    np.testing.assert_array_equal(*same(ds.asarray, values))
for value in (1.5, 3, -7, float("inf"), float("nan"), -0.0):
    for shape in ((), (0,), (2, 3)):
        found = same(ds.full, shape, value)
        np.testing.assert_array_equal(*found)
        assert (np.signbit(found[0]) == np.signbit(found[1])).all()
for dtype in ("bool", "int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64"):
    try:
        ds.zeros(1, dtype=dtype)
    except ds.ConversionError:  # the framework lacks it
        continue
    strided = np.ones((4, 6), dtype)[::-2, 1::2].T
    for a in (np.ones((2, 3), dtype), np.zeros((), dtype), np.zeros((0, 2), dtype), strided):
        x, y = same(ds.from_numpy, a)
        np.testing.assert_array_equal(x, a)
        np.testing.assert_array_equal(y, a)
        x = ds.from_numpy(a)
        if a.ndim and a.size:
            a[...] = 0
            assert ds.to_numpy(x).all(), "the tensor shares the array's memory"
            first, second = ds.to_numpy(x), ds.to_numpy(x)
            first[...] = 0
            assert second.all(), "an array shares the tensor's memory"
for draw in (ds.random.uniform, ds.random.normal):
    for shape in ((), (0,), (2, 3), 4):
        same(draw, size=shape)
    ds.random.seed(3)
    one = ds.to_numpy(draw(size=5))
    with ds.transfers():
        ds.random.seed(3)
        other = ds.to_numpy(draw(size=5))
    np.testing.assert_array_equal(one, other)
for call, args in (
    (ds.random.uniform, (-1, 1, 5)),
    (ds.random.normal, (3, 0.5, 5)),
    (ds.random.randint, (10, None, 5)),
    (ds.random.randint, (-(2**31), 2**31, (2, 3))),
    (ds.random.permutation, (5,)),
    (ds.random.bernoulli, (0.5, 5)),
):
    ds.random.seed(3)
    one = ds.to_numpy(call(*args))
    with ds.transfers():
        ds.random.seed(3)
        other = ds.to_numpy(call(*args))
    assert one.dtype == other.dtype, call
    np.testing.assert_array_equal(one, other)
for args in ((5,), (2, 9, 3), (9, 2, -2), (3, 0), (0.0, 1.0, 0.125), (1, 2, 0.25), (2**31 - 3, 2**31 - 1)):
    np.testing.assert_array_equal(*same(ds.arange, *args))
    np.testing.assert_array_equal(*same(ds.arange, *args, dtype="float32"))
for args, k in (((3,), 0), ((2, 4), 1), ((4, 2), -1), ((0, 3), 0), ((2, 2), 5)):
    np.testing.assert_array_equal(*same(ds.eye, *args, k=k))
for dtype in ("bool", "int8", "int64", "float16", "float32", "float64"):
    if dtype in registry.gaps(name):
        continue
    for x in (ds.ones((2, 3), dtype=dtype), ds.ones((), dtype=dtype), ds.ones((0, 2), dtype=dtype)):
        for call in (ds.zeros_like, ds.ones_like, lambda x: ds.full_like(x, 1)):
            found = same(call, x)
            np.testing.assert_array_equal(*found)
            assert found[0].dtype == found[1].dtype == dtype
    np.testing.assert_array_equal(*same(ds.full, (2, 3), 1, dtype=dtype))
    np.testing.assert_array_equal(*same(ds.asarray, [[1, 0], [1, 1]], dtype=dtype))
low = ds.to_numpy(ds.random.uniform(2, 3, size=1000))
assert ((low >= 2) & (low < 3)).all() and low.std() > 0.1
"""
ARRAY = np.arange(6, dtype="float32").reshape(2, 3)


class FastPathTests(SubprocessKit):
    """Fast paths that skip no check."""

    @feature("create")
    @pytest.mark.parametrize("call", NEW)
    def test_a_fast_new_tensor_follows_the_default_device(self, call: str, device: Device) -> None:
        """`on`, inside and after the block, in a new tensor and one copied from NumPy."""
        new = NEW[call]
        assert ds.device_of(new()) is ds.cpu()
        with ds.on(device):
            assert ds.device_of(new()) is device
            assert ds.device_of(ds.from_numpy(ARRAY)) is device
            assert ds.device_of(new(device="cpu")) is ds.cpu()
        assert ds.device_of(new()) is ds.cpu()
        assert ds.device_of(ds.from_numpy(ARRAY)) is ds.cpu()

    @feature("create", "float16")
    @pytest.mark.parametrize("call", NEW)
    def test_a_fast_new_tensor_follows_the_default_dtype(self, call: str) -> None:
        """`set_default_dtype`, and a dtype that the call names."""
        new = NEW[call]
        before = ds.dtype_of(new())
        ds.set_default_dtype("float16")
        try:
            assert ds.dtype_of(new()) == "float16"
            assert ds.dtype_of(new(dtype="float32")) == "float32"
        finally:
            ds.set_default_dtype(None)
        assert ds.dtype_of(new()) == before
        assert ds.dtype_of(new(dtype=np.dtype("float32"))) == "float32"

    @feature("create", "explain")
    @pytest.mark.parametrize("call", NEW)
    def test_a_fast_new_tensor_is_explained(self, call: str) -> None:
        """Each call gives its line."""
        new = NEW[call]
        new()
        with ds.explain(file=None) as lines:
            new()
            assert len(lines) == 1
            ds.to_numpy(ds.from_numpy(ARRAY))
            assert len(lines) == 3

    @feature("create")
    @pytest.mark.parametrize("call", NEW)
    def test_a_fast_new_tensor_has_memory_of_its_own(self, call: str) -> None:
        """Two calls give two tensors, and what is written to one is not in the other."""
        one, other = NEW[call](), NEW[call]()
        assert one is not other
        read = ds.to_numpy(one)
        read[...] = -1
        assert (ds.to_numpy(one) != -1).all()

    @feature("create")
    def test_fast_copies_are_recorded(self) -> None:
        """A ledger has the copies from and to NumPy, even after calls without one."""
        x = ds.from_numpy(ARRAY)
        ds.to_numpy(x)
        with ds.transfers() as log:
            ds.to_numpy(ds.from_numpy(ARRAY))
        assert [record.bytes for record in log.records] == [ARRAY.nbytes] * log.count
        assert log.count == 2

    @feature("create")
    def test_fast_copies_of_numpy_share_no_memory(self) -> None:
        """In both directions, with any order of the axes."""
        for array in (ARRAY.copy(), ARRAY.T.copy().T, ARRAY[:, ::2].copy(), ARRAY[::-1, ::2]):
            expected = array.copy()
            x = ds.from_numpy(array)
            if array.base is None:
                array[...] = -1
            read = ds.to_numpy(x)
            np.testing.assert_array_equal(read, expected)
            read[...] = -2
            np.testing.assert_array_equal(ds.to_numpy(x), expected)

    @feature("create")
    def test_a_ledger_that_opens_between_two_batches_is_noticed(self) -> None:
        """Batches in memory are copied fast, each for itself; a loop may open a ledger after any of them."""
        batches: list[Any] = [{"x": ARRAY + i, "y": [ARRAY]} for i in range(3)]
        running = iter(ds.prefetch(batches, "cpu"))
        first = next(running)
        assert type(first["x"]) is type(ds.from_numpy(ARRAY))
        with ds.transfers() as log:
            running = iter(ds.prefetch(batches[:2], "cpu"))
            next(running)
        assert [record.bytes for record in log.records] == ([] if self.adapter.has_plain_arrays else [ARRAY.nbytes] * 2)
        np.testing.assert_array_equal(ds.to_numpy(next(running)["y"][0]), ARRAY)
        assert log.count == len(log.records)

    @feature("value_and_grad")
    def test_fast_gradients_follow_the_settings(self) -> None:
        """A function computes on the device of its tensors, and an error comes before the call."""
        w, seen = ds.asarray([1.0, 2.0]), []

        def loss(tree: Any) -> Any:
            seen.append((ds.device_of(ds.ones(1)), ds.dtype_of(ds.ones(1))))
            return (tree["w"] * tree["w"])[0]

        step = ds.value_and_grad(loss)
        step({"w": w})
        with ds.on(ds.devices()[-1]):
            step({"w": w})
        assert [device for device, _ in seen] == [ds.cpu()] * 2
        with pytest.raises(ds.ArgumentError, match="int64"):
            step({"w": w, "n": ds.asarray([1], dtype="int64")})
        with pytest.raises(ds.ArgumentError, match=r"\['n'\]"):
            step({"w": w, "n": 1.0})
        with pytest.raises(ds.ArgumentError, match="argument 1"):
            ds.value_and_grad(loss, argnums=1)({"w": w})
        assert len(seen) == 2

    @pytest.mark.fresh
    @feature("create", "float64")
    def test_a_process_without_gpus_makes_the_same_tensors(self) -> None:
        """The fast paths that need a process with only the host make what the slow paths make."""
        self.without_gpus(HOST_ONLY)
