"""Tests of `namespace`: integers are exact, and results that do not fit wrap, as NumPy's do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import devshim as ds
from devshim.testing.base import Kit
from devshim.testing.values import feature

if TYPE_CHECKING:
    from devshim.devices.device import Device

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


class NamespaceWrappingTests(Kit):
    """Functions of integers whose exact results need all bits."""

    @feature("namespace")
    @pytest.mark.parametrize("dtype", INTEGERS)
    @pytest.mark.parametrize("name", ["bitwise_left_shift", "bitwise_right_shift"])
    def test_shifts_are_exact(self, name: str, dtype: str, device: Device) -> None:
        """Shifts by tensors and numbers lose no bits but those that leave the dtype."""
        info = np.iinfo(dtype)
        a = np.array([info.max, info.max - 1, 1, 3, info.min, info.min + 5, 0], dtype)
        counts = np.array([1, 2, info.bits - 1, info.bits // 2, 1, info.bits - 2, 3], dtype)
        self._compare(name, (a, counts), device)
        self._compare(name, (a, 2), device)
        self._compare(name, (3, counts), device)

    @feature("namespace")
    @pytest.mark.parametrize("dtype", INTEGERS)
    def test_powers_wrap(self, dtype: str, device: Device) -> None:
        """Powers of integers are products that wrap: no float is rounded or saturated."""
        info = np.iinfo(dtype)
        bases = np.array([5, 3, 7, 2, 0, 1, info.min, info.max, 2], dtype)
        large = 63 if self.backend == "jax" else info.max  # jax.numpy reads six bits of an exponent
        exponents = np.array([30, 41, 3, info.bits - 1, 0, large, 3, 2, large], dtype)
        self._compare("pow", (bases, exponents), device)
        self._compare("pow", (bases, 30), device)
        self._compare("pow", (bases, 0), device)
        self._compare("pow", (3, exponents), device)

    @feature("namespace")
    @pytest.mark.parametrize("dtype", INTEGERS)
    @pytest.mark.parametrize("name", ["prod", "sum", "cumulative_prod", "cumulative_sum"])
    def test_reductions_wrap(self, name: str, dtype: str, device: Device) -> None:
        """Products and sums of integers have the low bits of the exact result."""
        info = np.iinfo(dtype)
        a = np.array([[3, info.max, 7], [5, info.min + 1, info.max - 2]], dtype)
        if (x := self._tensor_of(a, device)) is None:
            return
        for axis in (0, 1) if name.startswith("cum") else (None, 0, 1, (0, 1)):
            y = getattr(ds.namespace(x), name)(x, axis=axis)
            original = getattr(np, {"cumulative_prod": "cumprod", "cumulative_sum": "cumsum"}.get(name, name))
            wide = ds.dtype_of(y)
            assert ds.device_of(y) is device
            np.testing.assert_array_equal(ds.to_numpy(y), original(a.astype(wide), axis=axis, dtype=wide))

    @feature("namespace")
    @pytest.mark.parametrize("dtype", INTEGERS)
    def test_products_of_matrices_wrap(self, dtype: str, device: Device) -> None:
        """`matmul`, `tensordot` and `vecdot` of integers have the low bits of the exact result."""
        if self.backend == "torch" and device is not ds.cpu():
            return  # CUDA has no product of matrices of integers, and PyTorch says so
        info = np.iinfo(dtype)
        a = np.array([[3, info.max, 7], [5, info.min + 1, info.max - 2]], dtype)
        b = np.array([[info.max, 1], [info.max - 3, 3], [info.min, 9]], dtype)
        self._compare("matmul", (a, b), device)
        self._compare("matmul", (a[0], b), device)
        self._compare("matmul", (np.stack([a, a]), b[:, 0].copy()), device)
        x, y = self._tensor_of(a, device), self._tensor_of(b, device)
        if x is None or self._lacks(dtype):
            return
        xp = ds.namespace(x)
        np.testing.assert_array_equal(ds.to_numpy(xp.tensordot(x, y, axes=1)), np.tensordot(a, b, axes=1))
        expected = (a * b.T).sum(-1, dtype=dtype)
        np.testing.assert_array_equal(ds.to_numpy(xp.vecdot(x, xp.matrix_transpose(y))), expected)

    @feature("namespace")
    @pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
    def test_quotients_by_minus_one_wrap(self, dtype: str, device: Device) -> None:
        """The smallest integer divided by -1 wraps, and the remainder is 0: no processor traps."""
        low = int(np.iinfo(dtype).min)
        a, b = np.array([low, -7, 7, low], dtype), np.array([-1, 2, -1, 2], dtype)
        half = low // 2
        expected: dict[str, tuple[list[int], list[int], list[int]]] = {
            "floor_divide": ([low, -4, -7, half], [low, 7, -7, low], [low, half, low, half]),
            "remainder": ([0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]),
        }
        for name, results in expected.items():
            for values, numbers in zip(((a, b), (a, -1), (low, b)), results, strict=True):
                xs = [self._tensor_of(value, device) for value in values]
                if any(x is None for x in xs):
                    return
                with np.errstate(all="ignore"):
                    y = getattr(ds.namespace(next(x for x in xs if not isinstance(x, int))), name)(*xs)
                assert (ds.dtype_of(y), ds.to_numpy(y).tolist()) == (dtype, numbers)

    @feature("namespace")
    @pytest.mark.parametrize("dtype", ["int32", "uint8", "int8", "bool", "float32"])
    @pytest.mark.parametrize("name", ["cumulative_sum", "cumulative_prod", "sum", "prod"])
    def test_a_named_dtype_is_that_of_the_result(self, name: str, dtype: str, device: Device) -> None:
        """Sums and products in int32 are int32, also of no elements, and wrap."""
        for count in (0, 3):
            x = ds.from_numpy(np.ones((count,), dtype), device)
            xp = ds.namespace(x)
            assert ds.dtype_of(getattr(xp, name)(x, dtype=xp.int32)) == "int32"
        x = ds.from_numpy(np.array([2**31 - 1, 2], "int32"), device)
        y = ds.to_numpy(getattr(ds.namespace(x), name)(x, dtype=ds.namespace(x).int32))
        assert y.ravel()[-1] == (-2 if name.endswith("prod") else 1 - 2**31)

    @feature("namespace")
    def test_bounds_outside_the_range_of_integers_do_not_clip(self, device: Device) -> None:
        """`clip` of integers takes Python bounds of any size."""
        x = ds.from_numpy(np.array([0, 7, 200], "uint8"), device)
        xp = ds.namespace(x)
        for low, high, expected in ((-1, 300, [0, 7, 200]), (5, 300, [5, 7, 200]), (-1, 9, [0, 7, 9])):
            y = xp.clip(x, low, high)
            assert (ds.dtype_of(y), ds.device_of(y)) == ("uint8", device)
            assert ds.to_numpy(y).tolist() == expected
        a = np.array([2**63 - 1, -5, 2**53 + 1])
        x = ds.from_numpy(a, device)
        if ds.dtype_of(x) == "int64" and self.backend in ("tensorflow", "paddle", "mxnet"):
            assert ds.to_numpy(xp.clip(x, 0, np.inf)).tolist() == [2**63 - 1, 0, 2**53 + 1]

    @feature("namespace")
    def test_integers_are_compared_with_numbers_outside_their_range(self, device: Device) -> None:
        """Comparisons and quotients of integers take Python numbers of any size; JAX and PyTorch have their own."""
        if self.backend in ("jax", "torch"):
            return
        for dtype, large in (("uint8", 300), ("int8", 128), ("int64", 2**63)):
            x = ds.from_numpy(np.array([0, 1, np.iinfo(dtype).max], dtype), device)
            xp = ds.namespace(x)
            for name in ("less", "less_equal", "not_equal"):
                assert ds.to_numpy(getattr(xp, name)(x, large)).all()
                assert ds.to_numpy(getattr(xp, name)(large, x)).any() == (name == "not_equal")
            for name in ("greater", "greater_equal", "equal"):
                assert not ds.to_numpy(getattr(xp, name)(x, large)).any()
        if self.backend != "numpy":  # which raises an OverflowError
            x = ds.from_numpy(np.array([0, 150], "uint8"), device)
            assert ds.to_numpy(ds.namespace(x).divide(x, 300)).tolist() == [0, 0.5]

    def _lacks(self, dtype: str) -> bool:
        """Return True if the framework has no operators for a dtype: PyTorch stores these, and computes little."""
        return self.backend == "torch" and dtype in ("uint16", "uint32", "uint64")

    def _tensor_of(self, value: Any, device: Device) -> Any:
        """Return a tensor of an array, a number unchanged, or None if the framework does not have the dtype."""
        if isinstance(value, int):
            return value
        try:
            x = ds.from_numpy(value, device)
        except ds.ConversionError:
            return None
        return x if ds.dtype_of(x) == value.dtype.name else None

    def _compare(self, name: str, values: tuple[Any, Any], device: Device) -> None:
        """Check that a function of two tensors or numbers returns NumPy's integers."""
        dtype = next(value.dtype for value in values if isinstance(value, np.ndarray))
        xs = [self._tensor_of(value, device) for value in values]
        if any(x is None for x in xs) or self._lacks(dtype.name):
            return
        original = {"bitwise_left_shift": "left_shift", "bitwise_right_shift": "right_shift", "pow": "power"}
        with np.errstate(all="ignore"):
            expected = getattr(np, original.get(name, name))(*(np.asarray(value, dtype) for value in values))
        y = getattr(ds.namespace(*[x for x in xs if not isinstance(x, int)][:1]), name)(*xs)
        assert (ds.dtype_of(y), ds.device_of(y)) == (dtype.name, device)
        np.testing.assert_array_equal(ds.to_numpy(y), expected)
