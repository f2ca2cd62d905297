"""Tests of `namespace`: values with NaNs, and those of dtypes and shapes for which frameworks have other answers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import devshim as ds
from devshim.testing.base import Kit
from devshim.testing.values import feature

if TYPE_CHECKING:
    from devshim.devices.device import Device

NANS = np.array([5, np.nan, np.inf, 1, -np.nan, 4, 2, -np.inf, 0, 5], "float32")
"""Numbers that are sorted wrongly by comparisons that are false for NaNs."""

FLOATS = np.array([-7.5, -1, 0, 0.5, 1, 2.5, 7], "float32")
SIGNED = np.array([-7, 7, 0, 3, -1, 8, 2], "int32")
BYTES = np.array([0, 7, 1, 3, 5, 8, 2], "uint8")
BOOLS = np.array([True, False, True, True, False, False, True])
LARGE = np.array([2**53 + 1, 2**53, -(2**53) - 1, 2**53 + 2, 2**60 + 1, 2**60, 0], "int64")

OF_ONE: dict[str, tuple[str, tuple[np.ndarray, ...]]] = {
    **{name: (name, (SIGNED, BYTES, BOOLS)) for name in ("exp", "expm1", "sin", "cos", "tanh", "sinh", "cosh")},
    "atan": ("arctan", (SIGNED, BYTES, BOOLS)),
    "asinh": ("arcsinh", (SIGNED, BYTES, BOOLS)),
    "sqrt": ("sqrt", (BYTES, BOOLS)),
    "log1p": ("log1p", (BYTES, BOOLS)),
    "sign": ("sign", (SIGNED, BYTES, NANS, LARGE)),
    "negative": ("negative", (SIGNED, NANS, LARGE)),
    "abs": ("abs", (SIGNED, BYTES, NANS, LARGE)),
    "logical_not": ("logical_not", (SIGNED, FLOATS, NANS)),
    "max": ("max", (SIGNED, BYTES, NANS, LARGE)),
    "min": ("min", (SIGNED, BYTES, NANS, LARGE)),
    "sort": ("sort", (SIGNED, BYTES, LARGE)),
    **{name: (name, (SIGNED, BYTES, LARGE, -LARGE)) for name in ("argmax", "argmin", "argsort")},
    "unique_values": ("unique", (SIGNED, LARGE)),
}
"""Functions of one tensor: NumPy's name, and the tensors."""

OF_TWO: dict[str, tuple[str, tuple[np.ndarray, ...], tuple[Any, ...]]] = {
    "divide": ("divide", (SIGNED, FLOATS), (SIGNED, FLOATS, 2, 0)),
    "atan2": ("arctan2", (SIGNED, FLOATS), (SIGNED, FLOATS)),
    "remainder": ("remainder", (FLOATS,), (FLOATS, 2.0, 0.0)),
    **{f"logical_{name}": (f"logical_{name}", (SIGNED, FLOATS), (FLOATS, BOOLS)) for name in ("and", "or", "xor")},
    **{
        name: (name, (SIGNED, FLOATS), (np.roll(SIGNED, 1), 7))
        for name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
    },
    "maximum": ("maximum", (SIGNED, LARGE), (np.roll(LARGE, 1),)),
    "floor_divide": ("floor_divide", (SIGNED,), (SIGNED + 20, -3)),
}
"""Functions of two tensors: NumPy's name, and the tensors and numbers."""

OF_LARGE = (
    *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
    *("add", "subtract", "maximum", "minimum", "floor_divide", "remainder"),
)
"""Functions of two tensors that are exact for integers beyond 2**53."""

RECORDED: dict[str, Callable[[Any, Any], Any]] = {
    "unique_values": lambda xp, x: xp.flip(xp.sort(xp.unique_values(x))),
    "unique_inverse": lambda xp, x: xp.unique_inverse(x).inverse_indices,
    "comparison of where": lambda xp, x: xp.less(xp.reshape(xp.where(xp.less(x, 2), x, x), (1, 3)), 2)[0],
    "comparison of concat": lambda xp, x: xp.less(xp.sum(xp.concat([x, x])), xp.abs(x)),
    "isin of concat": lambda xp, x: xp.isin(xp.astype(xp.concat([x[:1], x[1:]]), xp.float32), x),
    "searchsorted": lambda xp, x: xp.searchsorted(xp.sort(x), xp.where(xp.less(x, 2), x, x)),
    "argsort": lambda xp, x: xp.argsort(xp.where(xp.less(x, 2), x, x)),
}
"""Functions of a vector of three numbers whose results have no gradient."""

REFUSED: dict[str, Callable[[Any, Any], Any]] = {
    "argmax of nothing": lambda xp, x: xp.argmax(x[:0]),
    "argmin of nothing": lambda xp, x: xp.argmin(x[:0], axis=0),
    "max of nothing": lambda xp, x: xp.max(x[:0]),
    "min of nothing": lambda xp, x: xp.min(x[:0], axis=0),
    "concat": lambda xp, x: xp.concat([]),
    "stack": lambda xp, x: xp.stack([]),
    "triu of a number": lambda xp, x: xp.triu(xp.sum(x)),
    "side": lambda xp, x: xp.searchsorted(x, x, side="middle"),
    "indexing": lambda xp, x: xp.meshgrid(x, x, indexing="zz"),
    "axis": lambda xp, x: xp.sum(x, axis=3),
}
"""Calls that every framework refuses."""


class NamespaceValuesTests(Kit):
    """The values of the array API's functions on every framework."""

    @feature("namespace")
    def test_a_zero_keeps_its_sign(self, device: Device) -> None:
        """Numbers 0.0 and -0.0 keep their signs, also one after the other; to divide by them gives two infinities."""
        x = ds.asarray([1.0, 2.0], dtype="float32", device=device)
        xp = ds.namespace(x)
        for zero in (0.0, -0.0, 0.0, -0.0):
            sign = np.copysign(1.0, zero)
            with np.errstate(divide="ignore"):
                assert ds.to_numpy(xp.divide(x, zero)).tolist() == [sign * np.inf] * 2
            assert ds.to_numpy(xp.copysign(x, zero)).tolist() == [sign, 2 * sign]
            made = (
                *(ds.full(2, zero, dtype="float32", device=device), ds.asarray(zero, dtype="float32", device=device)),
                *(ds.full_like(x, zero), xp.where(x > 5, x, zero), xp.multiply(x, zero)),
            )
            assert [np.signbit(ds.to_numpy(each)).all() for each in made] == [sign < 0] * 5

    @feature("namespace")
    @pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
    @pytest.mark.parametrize("axis", [0, -1])
    def test_nans_are_sorted_last(self, dtype: str, axis: int, device: Device) -> None:
        """`sort` and `argsort` are stable, with NaNs as the largest values: last, or first if descending."""
        a = np.stack([NANS, np.roll(NANS, 3), np.sort(NANS)]).astype(dtype)
        x = ds.from_numpy(a, device)
        xp = ds.namespace(x)
        order = np.argsort(a, axis=axis, kind="stable")
        self._same(xp.argsort(x, axis=axis), order, device)
        self._same(xp.sort(x, axis=axis), np.sort(a, axis=axis), device)
        down = np.flip(np.sort(a, axis=axis), axis=axis)
        self._same(xp.sort(x, axis=axis, descending=True), down, device)
        turned = np.argsort(np.flip(a, axis=axis), axis=axis, kind="stable")
        order = a.shape[axis] - 1 - np.flip(turned, axis=axis)
        self._same(xp.argsort(x, axis=axis, descending=True), order, device)

    @feature("namespace", "gradient")
    @pytest.mark.parametrize("name", ["sort", "remainder"])
    def test_gradients_flow_where_nans_are_replaced(self, name: str, device: Device) -> None:
        """Functions that treat NaNs apart have the gradients of the other elements."""
        x, w = (ds.from_numpy(np.array(a, "float32"), device) for a in ([3, 1, 2], [1, 2, 4]))
        xp = ds.namespace(x)
        compute = xp.sort if name == "sort" else lambda t: xp.remainder(t, w)
        with self.scope_of(device):
            found = self.gradient(lambda t: xp.multiply(compute(t), w), x)
        assert np.allclose(ds.to_numpy(found), [96, 2, 16] if name == "sort" else [0, 8, 64])

    @feature("namespace", "gradient")
    @pytest.mark.parametrize("name", RECORDED)
    def test_functions_without_a_gradient_are_recorded(self, name: str, device: Device) -> None:
        """Results that only functions without a gradient read do not end the process while gradients are recorded."""
        x = ds.from_numpy(np.array([3, 1, 2], "float32"), device)
        xp = ds.namespace(x)
        if self.backend == "torch" and name == "unique_values":
            return  # PyTorch refuses its gradient

        def compute(t: Any) -> Any:
            return xp.add(t, xp.multiply(xp.astype(RECORDED[name](xp, t), xp.float32), 0))

        with self.scope_of(device):
            found = self.gradient(compute, x)
        np.testing.assert_array_equal(ds.to_numpy(found), [6, 2, 4])

    @feature("namespace")
    @pytest.mark.parametrize("value", [1e300, 1e-25, 0.1, 1 / 3, 123456789.123456789])
    def test_numbers_beside_float64_are_exact(self, value: float, device: Device) -> None:
        """Python numbers keep all bits beside float64."""
        x = ds.from_numpy(np.array([value]), device)
        if ds.dtype_of(x) != "float64":
            return
        xp = ds.namespace(x)
        assert ds.to_numpy(xp.equal(x, value)).all()
        one = xp.divide(x, x)
        for y in (xp.multiply(one, value), xp.where(xp.equal(x, x), value, one), ds.full_like(x, value)):
            assert ds.to_numpy(y).tolist() == [value]

    @feature("namespace")
    def test_sets_keep_nans(self, device: Device) -> None:
        """`unique_values` returns each NaN, last."""
        xp = ds.namespace(ds.from_numpy(NANS, device))
        self._same(xp.unique_values(ds.from_numpy(NANS, device)), np.unique(NANS, equal_nan=False), device)

    @feature("namespace")
    @pytest.mark.parametrize("name", OF_ONE)
    def test_functions_of_one_tensor_have_numpys_values(self, name: str, device: Device) -> None:
        """Functions of integers, bools and NaNs return NumPy's values: floats are neither rounded nor cast."""
        original, values = OF_ONE[name]
        for a in values:
            x, expected = ds.from_numpy(a, device), getattr(np, original)(a)
            if a.dtype.kind != "f" and expected.dtype.kind == "f":
                expected = getattr(np, original)(a.astype("float64"))  # NumPy computes with float16 for bytes
            self._same(getattr(ds.namespace(x), name)(x), expected, device)

    @feature("namespace")
    @pytest.mark.parametrize("name", OF_TWO)
    def test_functions_of_two_tensors_have_numpys_values(self, name: str, device: Device) -> None:
        """Functions of integers, floats and numbers return NumPy's values."""
        original, left, right = OF_TWO[name]
        for a in left:
            for b in right:
                x, y = ds.from_numpy(a, device), b if isinstance(b, (int, float)) else ds.from_numpy(b, device)
                with np.errstate(all="ignore"):
                    expected = getattr(np, original)(a, b)
                    found = getattr(ds.namespace(x), name)(x, y)
                self._same(found, expected, device)

    @feature("namespace")
    @pytest.mark.parametrize("name", OF_LARGE)
    def test_functions_of_large_integers_are_exact(self, name: str, device: Device) -> None:
        """Functions of integers beyond 2**53 are not computed in float64, which rounds them."""
        x = ds.from_numpy(LARGE, device)
        if ds.dtype_of(x) != "int64":
            return  # JAX without 64-bit dtypes
        for b in (np.roll(LARGE, 1) | 1, 2**53 + 1, -(2**60) - 1):
            y = b if isinstance(b, int) else ds.from_numpy(b, device)
            self._same(getattr(ds.namespace(x), name)(x, y), getattr(np, name)(LARGE, b), device)

    @feature("namespace")
    @pytest.mark.parametrize("name", ["mean", "var", "std"])
    def test_statistics_of_halves_do_not_overflow(self, name: str, device: Device) -> None:
        """`mean`, `var` and `std` of float16 are computed in a wider dtype, and returned in float16."""
        if self.backend == "numpy" and name != "mean":
            return  # NumPy's own overflow
        x = ds.from_numpy(np.full((300,), 300, "float16"), device)
        y = getattr(ds.namespace(x), name)(x)
        self._same(y, np.float16(300 if name == "mean" else 0), device)
        assert ds.dtype_of(y) == "float16"

    @feature("namespace")
    def test_the_mean_of_no_elements_is_nan(self, device: Device) -> None:
        """A mean over an axis without elements is NaN, as NumPy's."""
        x = ds.from_numpy(np.ones((3, 0), "float32"), device)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy warns
            self._same(ds.namespace(x).mean(x, axis=1), np.full((3,), np.nan, "float32"), device)
            self._same(ds.namespace(x).mean(x, axis=0), np.ones((0,), "float32"), device)

    @feature("namespace")
    def test_norms_of_integers_are_floats(self, device: Device) -> None:
        """A norm of integers is a float, unless the framework refuses them."""
        x = ds.from_numpy(np.array([2, 3], "int32"), device)
        try:
            y = ds.namespace(x).linalg.vector_norm(x)
        except RuntimeError:  # PyTorch refuses integers
            return
        self._same(y, np.float64(13**0.5), device)

    @feature("namespace")
    @pytest.mark.parametrize("call", REFUSED)
    def test_wrong_arguments_are_refused(self, call: str, device: Device) -> None:
        """Empty tensors without a largest value, empty lists and unknown options raise, with an error that is clear."""
        x = ds.from_numpy(SIGNED.astype("float32"), device)
        with pytest.raises((ValueError, IndexError, RuntimeError, TypeError)) as caught:
            REFUSED[call](ds.namespace(x), x)
        assert not str(caught.value).endswith(("index out of range", "got 1)", "got 0)"))

    @feature("namespace")
    def test_take_needs_an_axis_of_a_matrix(self, device: Device) -> None:
        """Without an axis, `take` selects from a vector only."""
        x = ds.from_numpy(np.arange(6, dtype="float32").reshape(2, 3), device)
        xp = ds.namespace(x)
        indices = ds.from_numpy(np.array([1, 0]), device)
        with pytest.raises(ValueError, match="axis"):
            xp.take(x, indices)
        self._same(xp.take(x[0], indices), np.array([1, 0], "float32"), device)

    def _same(self, y: Any, expected: Any, device: Device) -> None:
        """Check the values, shape, kind of dtype and device of a result."""
        found = ds.to_numpy(y)
        assert found.shape == np.shape(expected)
        assert found.dtype.kind == expected.dtype.kind
        if found.dtype.kind == "f":
            rtol = 2e-3 if found.dtype == "float16" else 2e-5
            assert np.allclose(found.astype("float64"), expected.astype("float64"), rtol=rtol, equal_nan=True)
        else:
            assert np.array_equal(found, expected)
        assert ds.device_of(y) is device
