"""Tests of dtypes by name: the array API's names map to the framework's own dtypes, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import devshim as ds
from devshim.testing.base import Kit
from devshim.testing.values import DTYPES, feature, numbers, numpy_dtype, sample

if TYPE_CHECKING:
    from devshim.devices.device import Device


class DtypeTests(Kit):
    """Names, casts and sizes."""

    @feature("numpy")
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_dtype_names_round_trip(self, dtype: str) -> None:
        """The framework's dtype for a name is recognized as its own, and tensors made with it have that name."""
        own = self.adapter.dtype(dtype)
        assert self.adapter.is_dtype(own)
        assert self.adapter.dtype_name(ds.zeros(2, dtype=own)) == dtype
        assert not self.adapter.is_dtype(dtype)
        assert not self.adapter.is_dtype(None)

    @feature("numpy")
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_size_and_shape_are_known(self, dtype: str, device: Device) -> None:
        """A tensor's bytes are its number of elements times their size, on any device."""
        x = ds.zeros((3, 4), dtype=dtype, device=device)
        width = {"bool": 1, "bfloat16": 2}.get(dtype) or np.dtype(dtype).itemsize
        assert self.adapter.nbytes(x) == 12 * width
        assert self.adapter.shape(x) == (3, 4)
        assert all(type(size) is int for size in self.adapter.shape(x))

    @feature("bfloat16")
    def test_bfloat16_is_cast_both_ways(self, device: Device) -> None:
        """bfloat16 stores what its eight bits of precision can represent, and is read back through float32."""
        x = ds.asarray([1.0, 3.140625, -0.5, 2.0**100], dtype="bfloat16", device=device)
        assert self.adapter.dtype_name(x) == "bfloat16"
        wide = ds.asarray(x, dtype="float32")
        assert ds.device_of(wide) is device
        assert ds.to_numpy(wide).tolist() == [1.0, 3.140625, -0.5, 2.0**100]

    @feature("bfloat16")
    @pytest.mark.parametrize("source", ["list", "numpy", "tensor"])
    def test_bfloat16_is_rounded_to_the_nearest(self, source: str, device: Device) -> None:
        """Values between two numbers of bfloat16 become the nearer one, or the even one if both are equally near."""
        values = [1.01, 3.14159, -2.7182818, 1 + 2.0**-8, 1 + 3 * 2.0**-8, 65504.0, -3e38, float("inf")]
        nearest = [1.0078125, 3.140625, -2.71875, 1.0, 1.015625, 65536.0, -3.00405527047391e38, float("inf")]
        array = np.array(values, np.float32)
        made = {"list": values, "numpy": array, "tensor": ds.from_numpy(array, device)}
        x = ds.asarray(made[source], dtype="bfloat16", device=device)
        found = ds.to_numpy(ds.asarray(x, dtype="float32"))
        np.testing.assert_array_equal(found, np.array(nearest, np.float32))

    @feature("bfloat16")
    @pytest.mark.parametrize("source", ["list", "numpy", "tensor"])
    @pytest.mark.parametrize("shape", [(10,), (1, 2, 1, 1, 5, 1, 1)], ids=str)
    def test_special_numbers_become_bfloat16(self, source: str, shape: tuple[int, ...], device: Device) -> None:
        """Subnormal numbers are rounded, large ones become infinite, and NaNs stay NaNs, with any number of axes."""
        values = [1e-39, -3e-39, 1.17e-38, 1e-45, -0.0, 3.39e38, 3.4e38, -np.inf, np.nan, 1.01]
        array = np.array(values, np.float32)
        expected = array.astype(numpy_dtype("bfloat16")).reshape(shape)
        array.view(np.uint32)[8] = 0x7F800001  # a NaN whose upper half is that of the infinity
        array = array.reshape(shape)
        made = {"list": array.tolist(), "numpy": array, "tensor": ds.from_numpy(array, device)}
        with np.errstate(invalid="ignore"):  # NumPy warns about such a NaN
            x = ds.asarray(made[source], dtype="bfloat16", device=device)
        found = ds.to_numpy(x)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found.astype(np.float32), expected.astype(np.float32))

    @feature("bfloat16", "namespace", "value_and_grad")
    @pytest.mark.parametrize("start", ["float32", "bfloat16"])
    @pytest.mark.parametrize("through", ["astype", "asarray", "multiply"])
    @pytest.mark.parametrize("shape", [(4,), (2, 1, 2), ()], ids=str)
    def test_gradients_of_bfloat16_are_rounded(
        self, shape: tuple[int, ...], through: str, start: str, device: Device
    ) -> None:
        """A cast from bfloat16 to float32, also inside a function, rounds the gradient to the nearest number."""
        xp = ds.namespace()
        values, nearest = [1.0077, 1.0233, -1.0389, 100.4], [1.0078125, 1.0234375, -1.0390625, 100.5]
        size = int(np.prod(shape))
        factors = ds.asarray(np.array(values[:size], np.float32).reshape(shape), device=device)

        def loss(x: Any) -> Any:
            narrow = xp.astype(x, xp.bfloat16)
            if through != "multiply":
                narrow = xp.astype(narrow, xp.float32) if through == "astype" else ds.asarray(narrow, dtype="float32")
            return xp.sum(xp.multiply(narrow, factors))

        _, gradient = ds.value_and_grad(loss)(ds.ones(shape, dtype=start, device=device))
        assert (self.adapter.dtype_name(gradient), ds.device_of(gradient)) == (start, device)
        assert ds.to_numpy(ds.asarray(gradient, dtype="float32")).ravel().tolist() == nearest[:size]

    @feature("numpy")
    @pytest.mark.parametrize("dtype", [pytest.param("float16", marks=feature("float16")), "float32", "int32", "uint8"])
    def test_a_cast_stays_on_its_device(self, dtype: str, device: Device) -> None:
        """``asarray(x, dtype=...)`` computes on the tensor's own device."""
        y = ds.asarray(self.tensor(device, dtype="int8"), dtype=dtype)
        assert ds.device_of(y) is device
        assert self.adapter.dtype_name(y) == dtype
        assert self.same_numbers(y, numbers())

    @feature("float64")
    def test_64_bit_values_survive_a_cast(self, device: Device) -> None:
        """64-bit values keep their width through host, device, copy and back."""
        for dtype in ("int64", "float64"):
            a = sample(dtype, (5,))
            back = ds.to_numpy(ds.place(ds.copy(ds.from_numpy(a, device), device), "cpu"))
            assert back.dtype == a.dtype
            assert back.tobytes() == a.tobytes()
