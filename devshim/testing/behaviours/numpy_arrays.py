"""Tests of `from_numpy` and `to_numpy`: every bit is preserved, and memory is never shared unless requested."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import devshim as ds
from devshim.testing.base import Kit
from devshim.testing.values import DTYPES, LAYOUTS, at_offset, bits, feature, native_bits, numbers, sample

if TYPE_CHECKING:
    from devshim.devices.device import Device

UNREADABLE: dict[str, Any] = {
    "objects": np.array([object()]),
    "text": np.array(["a"]),
    "records": np.zeros(2, [("a", "f4")]),
    "an array of records": np.rec.array([(1, 2.0)]),
    "dates": np.array(["2020-01-01"], "M8[D]"),
    "bytes": np.zeros(2, "V4"),
    "a mask": np.ma.masked_array([1.0, 2.0], [True, False]),
}


class NumpyArrayTests(Kit):
    """NumPy in, NumPy out."""

    @feature("numpy")
    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_round_trip(self, device: Device, dtype: str, layout: str) -> None:
        """Any dtype in any memory layout arrives on any device and comes back with every bit."""
        if layout == "other_endian" and dtype == "bfloat16":
            layout = "strided"  # NumPy has no bfloat16 of the other byte order
        a = LAYOUTS[layout](sample(dtype))
        before = native_bits(a)
        x = ds.from_numpy(a, device)
        assert ds.device_of(x) is device
        assert self.adapter.dtype_name(x) == dtype
        assert self.adapter.shape(x) == a.shape
        assert bits(ds.to_numpy(x)) == before == native_bits(a)

    @feature("numpy")
    @pytest.mark.parametrize("offset", [0, 1, 4, 16], ids="offset{}".format)
    def test_from_numpy_does_not_alias(self, device: Device, offset: int) -> None:
        """A later write to the array or the tensor does not change the other, at any memory address."""
        a = at_offset(numbers(), offset)
        x = ds.from_numpy(a, device)
        a[...] = -5
        assert self.same_numbers(x, numbers())
        if self.can_scribble(device):
            self.scribble(x)
        assert (a == -5).all()

    @feature("numpy")
    def test_to_numpy_does_not_alias(self, device: Device) -> None:
        """The array is new and writable; a write to one does not change the other."""
        x = self.tensor(device)
        a, b = ds.to_numpy(x), ds.to_numpy(x, copy=True)
        assert type(a) is np.ndarray
        assert a.flags.writeable
        a[...] = -5
        assert self.same_numbers(x, numbers())
        if self.can_scribble(device):
            self.scribble(x)
        assert (a == -5).all()
        assert bits(b) == bits(numbers())

    @feature("numpy")
    def test_from_numpy_shares_only_on_request(self) -> None:
        """``copy=False`` shares the memory, so that a write is visible, or raises."""
        a = at_offset(numbers(), 0)
        try:
            x = ds.from_numpy(a, copy=False)
        except ds.CopyNeededError:
            return
        a[...] = -5
        assert self.same_numbers(x, np.full((3, 4), -5, "float32"))

    @feature("numpy")
    def test_another_byte_order_is_never_shared(self) -> None:
        """``copy=False`` refuses an array of the other byte order, whose values cannot be read in place."""
        a = LAYOUTS["other_endian"](numbers())
        for share in (ds.from_numpy, ds.asarray):
            if share is ds.from_numpy or self.backend != "numpy":  # which is the tensor's own framework
                with pytest.raises(ds.CopyNeededError, match="byte order"):
                    share(a, copy=False)

    @feature("numpy")
    def test_to_numpy_shares_only_on_request(self) -> None:
        """``copy=False`` returns the tensor's own memory, so that a write is visible, or raises."""
        x = self.tensor()
        try:
            a = ds.to_numpy(x, copy=False)
        except ds.CopyNeededError:
            return
        assert bits(a) == bits(numbers())
        self.scribble(x)
        assert not np.array_equal(a, numbers())
        assert self.same_numbers(x, a)

    @feature("numpy")
    def test_a_gpu_shares_no_memory_with_the_host(self, other_device: Device) -> None:
        """``copy=False`` across devices raises."""
        with pytest.raises(ds.CopyNeededError):
            ds.to_numpy(self.tensor(other_device), copy=False)
        with pytest.raises(ds.CopyNeededError):
            ds.from_numpy(numbers(), other_device, copy=False)

    @feature("numpy")
    def test_read_only_memory_is_not_written(self, device: Device) -> None:
        """A tensor made from a read-only array can be written to without changing the array."""
        a = numbers()
        a.setflags(write=False)
        x = ds.from_numpy(a, device)
        if self.can_scribble(device):
            self.scribble(x)
        assert bits(a) == bits(numbers())

    @feature("numpy")
    def test_numpy_scalars_are_zero_dimensional(self, device: Device) -> None:
        """A NumPy scalar keeps its dtype and becomes a 0-d tensor."""
        x = ds.from_numpy(np.float32(2.5), device)  # type: ignore[arg-type]
        assert self.adapter.dtype_name(x) == "float32"
        assert self.same_numbers(x, np.float32(2.5))

    @feature("numpy")
    def test_a_numpy_scalar_counts_as_a_zero_dimensional_array(self, device: Device) -> None:
        """NumPy's operators return scalars where other frameworks return 0-d tensors: ``x.sum()``, ``loss / 2``."""
        value = np.ones(3, "float32").sum()
        assert (ds.device_of(value), ds.dtype_of(value)) == (ds.cpu(), "float32")
        assert ds.to_numpy(value).shape == ds.zeros_like(value).shape == ()
        assert ds.namespace(value) is ds.namespace({"loss": value}) is ds.namespace(np.ones(1))
        assert ds.place(value, "cpu") is value
        x = ds.convert(value, self.backend, device)
        assert (ds.device_of(x), ds.dtype_of(x), self.adapter.shape(x)) == (device, "float32", ())
        assert ds.to_numpy(ds.gather([value, value], "cpu")).tolist() == [3, 3]

    @feature("several")
    def test_a_numpy_scalar_in_a_tree_is_a_number(self, device: Device) -> None:
        """`gather` returns a scalar that is equal in all parts, as it is, and refuses scalars that differ."""
        rate = np.float32(0.1)
        parts = ds.split({"x": self.tensor(device), "rate": rate}, [device, "cpu"])
        for target in (device, ds.cpu()):
            back = ds.gather(parts, target)
            assert back["rate"] is rate
            assert ds.device_of(back["x"]) is target
        with pytest.raises(ds.ArgumentError, match="rate"):
            ds.gather([parts[0], {**parts[1], "rate": rate * 2}], "cpu")

    @feature("numpy")
    @pytest.mark.parametrize("kind", UNREADABLE)
    def test_unreadable_arrays_are_refused(self, kind: str) -> None:
        """An array of anything but numbers raises `ConversionError`."""
        with pytest.raises(ds.ConversionError):
            ds.from_numpy(UNREADABLE[kind])
        for values in (UNREADABLE[kind], [UNREADABLE[kind]], ([UNREADABLE[kind]], 1.0)):
            for dtype in (None, "float32"):
                with pytest.raises(ds.ConversionError, match=r"masked|counterpart"):
                    ds.asarray(values, dtype=dtype)

    @feature("numpy")
    @pytest.mark.parametrize("value", [[1.0], 2.5, "text", None], ids=repr)
    def test_from_numpy_requires_an_array(self, value: Any) -> None:
        """`from_numpy` takes only arrays; `asarray` takes other values."""
        with pytest.raises(ds.ArgumentError):
            ds.from_numpy(value)

    @feature("numpy", "gradient")
    @pytest.mark.hook("trainable")
    def test_a_trainable_tensor_is_read_detached(self, device: Device) -> None:
        """`to_numpy` does not require detaching first."""
        x = self.trainable(self.tensor(device))
        assert bits(ds.to_numpy(x)) == bits(numbers())
        assert self.is_trainable(x)

    @feature("namespace")
    @pytest.mark.parametrize("name", ["exp", "add", "matmul", "sum", "concat", "where", "linalg.vector_norm"])
    def test_functions_of_numpy_refuse_the_frameworks_tensors(self, name: str) -> None:
        """Otherwise NumPy would copy them to the host, and gradients would end there without an error."""
        if self.adapter.has_plain_arrays or self.adapter.host_tensors:
            return  # NumPy arrays are tensors of this framework
        a, x = numbers(), self.tensor()
        given = {"add": (x, a), "matmul": (a.T, x), "concat": ([a, x],), "where": (a > 0, a, x)}
        fn = ds.namespace(a)
        for part in name.split("."):
            fn = getattr(fn, part)
        with pytest.raises(ds.ArgumentError, match=rf"xp\.{name} .*NumPy.*{self.adapter.title}") as caught:
            fn(*given.get(name, (x,)))
        assert "ds.from_numpy" in str(caught.value)

    @feature("namespace")
    @pytest.mark.parametrize(
        "name", ["exp", "sum", "max", "matmul", "concat", "where", "take", "astype", "linalg.vector_norm"]
    )
    def test_functions_of_the_framework_compute_with_numpy_arrays_or_name_them(self, name: str) -> None:
        """Some frameworks read NumPy arrays as tensors on the host; the errors of the others say what was given."""
        a, x = numbers(), self.tensor()
        xp = ds.namespace(x)
        given = {"matmul": (a.T, x), "concat": ([a, x],), "where": (a > 0, a, x), "take": (x, np.array([0]))}
        given["astype"] = (a, xp.float32)
        options = {"axis": 0} if name == "take" else {}
        fn = xp
        for part in name.split("."):
            fn = getattr(fn, part)
        error = None
        try:
            found = fn(*given.get(name, (a,)), **options)
        except (ds.ArgumentError, AttributeError, TypeError) as raised:
            error = raised
        if error is None:
            assert not isinstance(found, np.ndarray) or self.adapter.has_plain_arrays
            return
        assert re.search(r"NumPy|numpy\.ndarray", str(error)), error
        if isinstance(error, ds.ArgumentError):
            assert f"xp.{name} is a function of {self.adapter.title}" in str(error)
            assert "ds.from_numpy" in str(error)
