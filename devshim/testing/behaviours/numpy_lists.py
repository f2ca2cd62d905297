"""Tests of lists that contain NumPy arrays and scalars: their dtype is the same on every framework."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import devshim as ds
from devshim.testing.base import Kit
from devshim.testing.values import DTYPES, OPTIONAL, feature, numpy_dtype

if TYPE_CHECKING:
    from devshim.devices.device import Device

MIXED: dict[str, tuple[Callable[[], Any], str]] = {
    "integers": (lambda: [np.ones(2, "int8"), np.ones(2, "int32")], "int32"),
    "an integer and a float": (lambda: [np.ones(2, "int64"), np.ones(2, "float32")], "float32"),
    "scalars of two kinds": (lambda: [np.int64(1), np.float32(1)], "float32"),
    "an array and Python floats": (lambda: [np.ones(2, "float32"), [1.0, True]], "float32"),
    "an array and Python integers": (lambda: [[1, 1], np.ones(2, "uint8")], "uint8"),
    "scalars and a Python integer": (lambda: [[[np.float16(1)], [1]]], "float16"),
    "a scalar among arrays": (lambda: [np.ones((), "float32"), np.float64(1)], "float32"),
    "a row of a tuple": (lambda: ((np.int32(1), np.int32(1)), [1, 1]), "int32"),
    "arrays without elements": (lambda: [np.ones((0, 2), "float32")], "float32"),
}
"""Lists of ones of several dtypes, and the dtype of the result."""


class NumpyListTests(Kit):
    """`asarray` of lists that contain NumPy arrays and scalars."""

    @pytest.fixture
    def _restore_defaults(self) -> Iterator[None]:
        """Restore the framework's own defaults after the test."""
        yield
        ds.set_default_dtype(None)

    @feature("create", "numpy")
    @pytest.mark.parametrize("dtype", [*DTYPES, *OPTIONAL])
    @pytest.mark.parametrize("default", [None, "float32"])
    @pytest.mark.usefixtures("_restore_defaults")
    def test_lists_keep_the_dtype_of_numpys_values(self, dtype: str, default: str | None, device: Device) -> None:
        """A list of arrays or scalars has their dtype, with and without a default, or the framework lacks the dtype."""
        ds.set_default_dtype(default)
        array = np.ones(2).astype(numpy_dtype(dtype))
        for values in ([array, array], [[array], [array]], list(array), ([array[0]], [array[1]])):
            try:
                x = ds.asarray(values, device=device)
            except ds.ConversionError as error:
                if dtype not in OPTIONAL or dtype not in str(error):
                    raise
                continue
            assert (ds.dtype_of(x), ds.device_of(x)) == (dtype, device)
            assert self.adapter.shape(x) == np.shape(values)

    @feature("create", "numpy", "float16", "float64")
    @pytest.mark.parametrize("case", MIXED)
    @pytest.mark.parametrize("default", [None, "float64"])
    @pytest.mark.usefixtures("_restore_defaults")
    def test_mixed_lists_have_one_dtype_on_every_framework(
        self, case: str, default: str | None, device: Device
    ) -> None:
        """The dtypes are promoted as those of tensors in a list, and numbers take one that can represent them."""
        ds.set_default_dtype(default)
        make, dtype = MIXED[case]
        x = ds.asarray(make(), device=device)
        assert (ds.dtype_of(x), ds.device_of(x)) == (dtype, device)
        assert self.same_numbers(x, np.ones(self.adapter.shape(x)))

    @feature("create", "float64")
    @pytest.mark.usefixtures("_restore_defaults")
    def test_a_number_that_no_dtype_of_the_list_represents_has_the_default(self, device: Device) -> None:
        """A float among integers has the default dtype of floats, which is then the dtype of all."""
        assert ds.dtype_of(ds.asarray([np.int32(1), 0.5], device=device)) == ds.dtype_of(ds.asarray(0.5))
        ds.set_default_dtype("float64")
        x = ds.asarray([np.ones(2, "int32"), [0.5, 1]], device=device)
        assert ds.dtype_of(x) == "float64"
        assert self.same_numbers(x, [[1, 1], [0.5, 1]])

    @feature("create", "float64")
    def test_values_of_numpy_keep_every_bit(self, device: Device) -> None:
        """Large integers and precise floats of NumPy are not rounded on the way."""
        for values in ([np.float64(0.1), np.float64(1e300)], [np.array([2**53 + 1]), np.array([-(2**62) - 1])]):
            assert ds.to_numpy(ds.asarray(values, device=device)).tolist() == np.asarray(values).tolist()

    @feature("create")
    @pytest.mark.parametrize(
        "values",
        [
            [np.ones(2, "float32"), np.ones(3, "float32")],
            [np.ones(2, "uint8"), [1, 300]],
            [np.ones(2, "uint8"), [1, -1]],
            [np.ma.masked_array([1.0, 2.0], [True, False])],
            [np.ones(2, "float32"), "text"],
            [np.datetime64("2020-01-01")],
        ],
        ids=["unequal rows", "a large number", "a negative number", "a masked array", "text", "a date"],
    )
    def test_lists_that_are_no_array_of_numbers_are_refused(self, values: Any, device: Device) -> None:
        """Rows of unequal lengths, masked values, numbers that do not fit and text raise `ConversionError`."""
        with pytest.raises(ds.ConversionError):
            ds.asarray(values, device=device)

    @feature("create", "numpy")
    @pytest.mark.parametrize("source", [*OPTIONAL, "uint8", "int8"])
    def test_lists_are_converted_to_a_dtype_that_is_given(self, source: str, device: Device) -> None:
        """With ``dtype=``, a list of arrays of any dtype of NumPy is converted, also one that the framework lacks."""
        x = ds.asarray([np.full(2, 7, source), np.full(2, 9, source)], dtype="float32", device=device)
        assert (ds.dtype_of(x), ds.device_of(x)) == ("float32", device)
        assert self.same_numbers(x, [[7, 7], [9, 9]])
