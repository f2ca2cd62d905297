"""Tests of `convert`: to another framework and back, bit for bit; memory is shared if that is safe; never a crash.

NumPy is the other framework here, because it is always installed. devshim's own ``together`` session tests pairs of
real frameworks.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import devshim as ds
from devshim.testing.base import Kit
from devshim.testing.values import DTYPES, LAYOUTS, at_offset, bits, feature, native_bits, numbers, sample

if TYPE_CHECKING:
    from devshim.devices.device import Device

OFFSETS = (1, 2, 4, 8, 12, 16, 20, 32, 36, 48, 64)
"""Byte offsets from a multiple of 64 at which an array starts."""
SHAPES = [(3, 4), (5,), (), (0, 3), (1, 3), (3, 1), (1, 1)]


def convert_slowly(x: Any, backend: str) -> Any:
    """Convert while `explain` is active, so that no fast path is taken."""
    with ds.explain(file=None) as lines:
        y = ds.convert(x, backend)
    assert len(lines) == 1
    return y


class ConvertTests(Kit):
    """NumPy arrays to tensors of the framework, and back."""

    @feature("convert")
    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("copy", [None, True])
    def test_convert_round_trip(self, device: Device, dtype: str, copy: bool | None) -> None:
        """Values, dtype and shape are equal bit for bit in the other framework, and after converting back."""
        a = sample(dtype)
        x = ds.from_numpy(a, device)
        y = ds.convert(x, "numpy", "cpu", copy=copy)
        assert bits(np.asarray(y)) == bits(a)
        back = ds.convert(y, self.backend, device, copy=copy)
        assert self.alike(back, x)
        assert ds.device_of(back) is device
        assert self.adapter.dtype_name(back) == dtype
        assert bits(ds.to_numpy(back)) == bits(a)

    @feature("convert")
    @pytest.mark.parametrize("dtype", ["float32", "int64", pytest.param("bool", marks=feature("bool"))])
    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_convert_reads_every_memory_layout(self, layout: str, dtype: str) -> None:
        """Negative strides, read-only memory and a foreign byte order give a correct result, and never a crash."""
        a = LAYOUTS[layout](sample(dtype))
        before = native_bits(a)
        x = ds.convert(a, self.backend)
        assert native_bits(ds.to_numpy(x)) == before
        if not a.flags.writeable and self.adapter.is_writable(x):
            self.scribble(x)
            assert native_bits(a) == before

    @feature("convert")
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_convert_copies_unaligned_memory(self, dtype: str) -> None:
        """Memory is never shared at an address at which an operator would crash; shared memory works in operators."""
        plain = numbers((5, 7), dtype)
        needed = self.adapter.alignment or plain.itemsize
        for offset in (0, *OFFSETS):
            a = at_offset(plain, offset)
            for share in (ds.convert, ds.from_numpy):
                with contextlib.suppress(ds.CopyNeededError):
                    share(a, copy=False)
                    assert offset % needed == 0
            x = ds.convert(a, self.backend)
            assert bits(ds.to_numpy(x)) == bits(a)
            if dtype in ("float32", "complex64", "complex128"):
                assert np.array_equal(ds.to_numpy(ds.run(lambda t: t + t, x)), a + a)
                assert np.array_equal(ds.to_numpy(ds.run(lambda t: t * t, self.part(x, slice(1, None)))), a[1:] * a[1:])

    @feature("convert")
    def test_copy_true_is_new_memory(self, device: Device) -> None:
        """``copy=True`` returns new memory, in both directions."""
        a = numbers()
        x = ds.convert(a, self.backend, device, copy=True)
        a[...] = -5
        assert self.same_numbers(x, numbers())
        b: Any = ds.convert(x, "numpy", "cpu", copy=True)
        if self.can_scribble(device):
            self.scribble(x)
        assert np.array_equal(b, numbers())

    @feature("zero_copy")
    def test_copy_false_shares(self) -> None:
        """``copy=False`` returns the same memory: a write on one side is visible on the other."""
        x = self.tensor()
        try:
            a: Any = ds.convert(x, "numpy", copy=False)
        except ds.CopyNeededError:
            assert self.adapter.immutable, "writable memory on the host can be shared"
            return
        self.scribble(x)
        assert not np.array_equal(a, numbers())
        assert self.same_numbers(x, a)

    @feature("convert")
    def test_convert_never_exposes_immutable_memory_for_writing(self) -> None:
        """A tensor that the framework treats as immutable cannot be changed through the other framework's tensor."""
        x = self.tensor()
        a: Any = ds.convert(x, "numpy")
        if not self.adapter.immutable:
            return
        if a.flags.writeable:
            a[...] = -5
        assert self.same_numbers(x, numbers())

    @feature("convert")
    def test_convert_within_a_framework_is_place(self, device: Device) -> None:
        """Converting to the tensor's own framework is the same as `place`: the same object if it is already there."""
        x = self.tensor(device)
        assert ds.convert(x, self.backend) is x
        assert ds.convert(x) is x
        assert ds.convert(x, copy=True) is not x

    @feature("convert")
    def test_convert_refuses_an_unknown_framework(self) -> None:
        """An unknown framework raises `BackendNotFoundError`.

        An object that is not a tensor raises `NotATensorError`.
        """
        with pytest.raises(ds.BackendNotFoundError):
            ds.convert(self.tensor(), "framework_of_nobody")
        with pytest.raises(ds.NotATensorError):
            ds.convert([1, 2], self.backend)

    @feature("convert", "gradient")
    @pytest.mark.hook("trainable")
    def test_a_trainable_tensor_is_converted_detached(self) -> None:
        """A tensor that requests its gradient is converted without detaching it first."""
        a: Any = ds.convert(self.trainable(self.tensor()), "numpy")
        assert np.array_equal(a, numbers())

    @feature("convert")
    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("shape", SHAPES, ids=str)
    def test_the_fast_path_of_convert_equals_the_slow_path(self, shape: tuple[int, ...], dtype: str) -> None:
        """A fast path returns the same tensor over the same memory as the slow path under `explain`."""
        a = at_offset(sample(dtype, shape), 0)
        ds.convert(a, self.backend)
        x, slow = ds.convert(a, self.backend), convert_slowly(a, self.backend)
        assert type(x) is type(slow)
        assert self.adapter.dtype_name(x) == dtype
        assert self.adapter.shape(x) == shape
        assert ds.device_of(x) is ds.cpu()
        ds.convert(x, "numpy")
        quick, likewise, thorough = ds.convert(x, "numpy"), ds.convert(slow, "numpy"), convert_slowly(x, "numpy")
        for b in (quick, likewise, thorough):
            assert type(b) is np.ndarray
            assert bits(b) == bits(a)
            assert b.flags.writeable is thorough.flags.writeable
            assert np.shares_memory(a, b) is np.shares_memory(a, thorough)

    @feature("convert")
    def test_the_fast_path_of_convert_checks_each_tensor(self, missing_device: Device) -> None:
        """After a plain tensor, a missing device, an invalid ``copy`` and unusual arrays are still detected."""
        plain = at_offset(numbers(), 0)
        x = ds.convert(ds.convert(plain, self.backend), self.backend)
        for source, backend in ((plain, self.backend), (x, "numpy")):
            ds.convert(source, backend)
            for copy in (None, False, True):
                with pytest.raises(ds.DeviceNotFoundError):
                    ds.convert(source, backend, missing_device, copy=copy)
            with pytest.raises(ds.ArgumentError, match="copy"):
                ds.convert(source, backend, copy=0)  # type: ignore[arg-type]
        for name, lay_out in LAYOUTS.items():
            odd = lay_out(numbers())
            before = native_bits(odd)
            y = ds.convert(odd, self.backend)
            assert native_bits(ds.to_numpy(y)) == before, name
        masked = np.ma.masked_array(plain, plain > 2)
        if self.backend == "numpy":  # its own array
            assert ds.convert(masked, self.backend) is masked
        else:
            with pytest.raises(ds.ConversionError, match="mask"):
                ds.convert(masked, self.backend)
        assert self.same_numbers(ds.convert(plain.view(type("Kin", (np.ndarray,), {})), self.backend), plain)

    @feature("convert")
    def test_observers_see_every_conversion(self) -> None:
        """A ledger records nothing for shared memory, and all bytes of each copy.

        A guard allows devshim's own copies.
        """
        plain = at_offset(numbers(), 0)
        x = ds.convert(plain, self.backend)
        for source, backend in ((plain, self.backend), (x, "numpy")):
            shared = ds.convert(source, backend)
            with ds.transfers() as log:
                again = ds.convert(source, backend)
                converting = [record.bytes for record in log.records]
                ds.convert(source, backend, copy=True)
            assert type(again) is type(shared)
            copied = [record.bytes for record in log.records[len(converting) :]]
            assert copied
            assert {*converting, *copied} == {plain.nbytes}
            is_shared = np.shares_memory(*(ds.convert(each, "numpy") for each in (source, again)))
            assert (converting == []) is is_shared
