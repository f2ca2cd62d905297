"""`convert`: to another framework and back, to the bit; shared where that is safe, and never an abort.

NumPy is the other framework here, because it is always there; the real ones meet in devshim's own ``together`` session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import devshim as ds
from devshim.testing.base import Kit
from devshim.testing.values import DTYPES, LAYOUTS, bits, feature, native_bits, numbers, sample

if TYPE_CHECKING:
    from devshim.device import Device


class Converting(Kit):
    """NumPy's arrays as the framework's tensors, and the other way round."""

    @feature("convert")
    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("copy", [None, True])
    def test_converted_there_and_back(self, device: Device, dtype: str, copy: bool | None) -> None:
        """Values, dtype and shape are equal to the bit in the other framework, and after coming back."""
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
    def test_any_layout_is_read(self, layout: str, dtype: str) -> None:
        """Negative strides, read-only memory, a foreign byte order: a right answer, never an abort."""
        a = LAYOUTS[layout](sample(dtype))
        before = native_bits(a)
        x = ds.convert(a, self.backend)
        assert native_bits(ds.to_numpy(x)) == before
        if not a.flags.writeable and self.adapter.is_writable(x):
            self.scribble(x)
            assert native_bits(a) == before

    @feature("convert")
    def test_copy_true_is_new_memory(self, device: Device) -> None:
        """``copy=True`` gives memory of its own, in both directions."""
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
        """``copy=False`` gives the same memory: a write on the one side is seen on the other."""
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
    def test_immutable_memory_is_not_handed_out_for_writing(self) -> None:
        """What the framework believes immutable cannot be changed through the other framework's tensor."""
        x = self.tensor()
        a: Any = ds.convert(x, "numpy")
        if not self.adapter.immutable:
            return
        if a.flags.writeable:
            a[...] = -5
        assert self.same_numbers(x, numbers())

    @feature("convert")
    def test_within_the_framework_it_is_place(self, device: Device) -> None:
        """Converting to the tensor's own framework is `place`: the same object where it is there."""
        x = self.tensor(device)
        assert ds.convert(x, self.backend) is x
        assert ds.convert(x) is x
        assert ds.convert(x, copy=True) is not x

    @feature("convert")
    def test_converting_to_nobody_is_refused(self) -> None:
        """A framework nobody has raises `BackendNotFoundError`; something that is no tensor `NotATensorError`."""
        with pytest.raises(ds.BackendNotFoundError):
            ds.convert(self.tensor(), "framework_of_nobody")
        with pytest.raises(ds.NotATensorError):
            ds.convert([1, 2], self.backend)

    @feature("convert", "gradient")
    @pytest.mark.hook("trainable")
    def test_a_trainable_tensor_is_converted_detached(self) -> None:
        """A tensor that asks for its gradient is converted without detaching it first."""
        a: Any = ds.convert(self.trainable(self.tensor()), "numpy")
        assert np.array_equal(a, numbers())
