"""Tests of `namespace`: tensors without elements, and with many axes, of all dtypes, have NumPy's results."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import devshim as ds
from devshim.testing.base import Kit
from devshim.testing.values import feature, numpy_dtype

if TYPE_CHECKING:
    from devshim.devices.device import Device

HALVES = [pytest.param(name, marks=feature(name)) for name in ("float16", "bfloat16")]

KEEP_DTYPE: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda xp, x: xp.add(x, x),
    "concat": lambda xp, x: xp.concat([x, x]),
    "exp": lambda xp, x: xp.exp(x),
    "mean": lambda xp, x: xp.mean(x, axis=1),
    "multiply": lambda xp, x: xp.multiply(x, 2),
    "operator": lambda xp, x: x + x,
    "reshape": lambda xp, x: xp.reshape(x, (-1,)),
    "sum": lambda xp, x: xp.sum(x),
    "where": lambda xp, x: xp.where(xp.greater(x, 0), x, x),
}
"""Functions whose results have the dtype of their argument."""


AXES = (None, 0, 1, -1, -2, (0, -1))

OF_NOTHING: dict[str, Callable[..., Any]] = {
    "all": np.all,
    "any": np.any,
    "count_nonzero": np.count_nonzero,
    "prod": np.prod,
    "sum": np.sum,
}
"""Reductions that have a result without elements: NumPy's functions."""

MANY = (2,) * 7
"""A shape of more axes than some operators take."""

OF_MANY_AXES: dict[str, tuple[Callable[[Any, Any], Any], Callable[[np.ndarray], Any]]] = {
    "argsort": (lambda xp, x: xp.argsort(x, axis=4), lambda a: np.argsort(a, axis=4, kind="stable")),
    "concat": (lambda xp, x: xp.concat([x, x], axis=4), lambda a: np.concatenate([a, a], axis=4)),
    "flip": (lambda xp, x: xp.flip(x, axis=(1, 4)), lambda a: np.flip(a, axis=(1, 4))),
    "nonzero": (lambda xp, x: xp.stack(list(xp.nonzero(x))), lambda a: np.stack(np.nonzero(a))),
    "permute_dims": (lambda xp, x: xp.permute_dims(x, (6, 5, 4, 3, 2, 1, 0)), np.transpose),
    "roll": (lambda xp, x: xp.roll(x, 1, axis=4), lambda a: np.roll(a, 1, axis=4)),
    "sign": (lambda xp, x: xp.sign(x), np.sign),
    "sort": (lambda xp, x: xp.sort(x, axis=1, descending=True), lambda a: np.flip(np.sort(a, axis=1), 1)),
    "stack": (lambda xp, x: xp.stack([x, x], axis=-1), lambda a: np.stack([a, a], axis=-1)),
    "max": (lambda xp, x: xp.max(x, axis=(0, 2, 4, 6)), lambda a: np.max(a, axis=(0, 2, 4, 6))),
    "sum": (lambda xp, x: xp.sum(x, axis=(0, 2, 4, 6)), lambda a: np.sum(a, axis=(0, 2, 4, 6))),
    "where": (lambda xp, x: xp.where(xp.greater(x, 3), x, xp.negative(x)), lambda a: np.where(a > 3, a, -a)),
}
"""Functions of a tensor, and NumPy's."""

SLICES: dict[str, tuple[Callable[[Any, Any], Any], Callable[[np.ndarray], Any]]] = {
    "diff": (lambda xp, x: xp.diff(x, axis=0), lambda a: np.diff(a, axis=0)),
    "nonzero": (lambda xp, x: xp.stack(list(xp.nonzero(x))), lambda a: np.stack(np.nonzero(a))),
    "repeat": (lambda xp, x: xp.repeat(x, 2, axis=1), lambda a: np.repeat(a, 2, axis=1)),
    "roll": (lambda xp, x: xp.roll(x, 1, axis=1), lambda a: np.roll(a, 1, axis=1)),
    "stack": (lambda xp, x: xp.stack([x, x]), lambda a: np.stack([a, a])),
    "unstack": (lambda xp, x: xp.unstack(x)[1], lambda a: a[1]),
}
"""Functions that move elements of tensors of all dtypes."""


class NamespaceShapesTests(Kit):
    """Functions of tensors without elements, and of tensors with many axes."""

    @feature("namespace")
    @pytest.mark.parametrize("dtype", ["bool", "int8", "float32"])
    @pytest.mark.parametrize("name", OF_NOTHING)
    def test_reductions_of_nothing_have_numpys_values(self, name: str, dtype: str, device: Device) -> None:
        """Reductions of tensors without elements have NumPy's values, whether or not their results have elements."""
        for shape in ((0, 3), (2, 0)):
            a = np.zeros(shape, dtype)
            x = ds.from_numpy(a, device)
            for axis in AXES:
                for keepdims in (False, True):
                    y = getattr(ds.namespace(x), name)(x, axis=axis, keepdims=keepdims)
                    expected = np.asarray(OF_NOTHING[name](a, axis=axis, keepdims=keepdims))
                    ds.synchronize(device)
                    self._equal(y, expected, device)

    @feature("namespace")
    @pytest.mark.parametrize("dtype", ["int8", "float32"])
    def test_products_of_nothing_are_zeros(self, dtype: str, device: Device) -> None:
        """A product of matrices that share an axis without elements is zero."""
        x, y = (ds.from_numpy(np.ones(shape, dtype), device) for shape in ((2, 0), (0, 3)))
        if self.backend == "torch" and dtype == "int8" and device is not ds.cpu():
            return  # CUDA has no product of matrices of integers, and PyTorch says so
        xp = ds.namespace(x)
        self._equal(xp.matmul(x, y), np.zeros((2, 3), dtype), device)
        self._equal(xp.matmul(y, xp.matrix_transpose(y)), np.zeros((0, 0), dtype), device)

    @feature("namespace")
    @pytest.mark.parametrize("dtype", ["int32", "float32", "float64"])
    @pytest.mark.parametrize("name", OF_MANY_AXES)
    def test_tensors_may_have_many_axes(self, name: str, dtype: str, device: Device) -> None:
        """Functions of tensors with seven axes return NumPy's values."""
        if self.backend == "paddle" and name == "roll":
            return  # its slices refuse seven axes, and say so
        fn, original = OF_MANY_AXES[name]
        a = (np.arange(128) * 37 % 11 - 3).astype(dtype).reshape(MANY)
        x = ds.from_numpy(a, device)
        self._equal(fn(ds.namespace(x), x), original(a), device)

    @feature("namespace")
    @pytest.mark.parametrize("dtype", ["int16", "uint16", "uint32", "uint64", "bool"])
    @pytest.mark.parametrize("name", SLICES)
    def test_elements_of_all_dtypes_can_move(self, name: str, dtype: str, device: Device) -> None:
        """Functions that move elements take the dtypes that have few operators."""
        if self.backend == "torch" and dtype in ("uint16", "uint32", "uint64"):
            return  # PyTorch stores these, and computes little
        if dtype == "bool" and name == "diff":
            return  # PyTorch and JAX refuse it
        a = np.array([[3, 0, 1], [2, 5, 9]], dtype)
        try:
            x = ds.from_numpy(a, device)
        except ds.ConversionError:
            return  # the framework does not have the dtype
        fn, original = SLICES[name]
        self._equal(fn(ds.namespace(x), x), original(a), device)

    def _equal(self, y: Any, expected: np.ndarray, device: Device) -> None:
        """Check the values, kind of dtype and device of a result."""
        found = ds.to_numpy(y)
        assert found.dtype.kind in expected.dtype.kind + "iu" * (expected.dtype.kind == "u")
        np.testing.assert_array_equal(found, expected)
        assert ds.device_of(y) is device

    @feature("namespace")
    @pytest.mark.parametrize("dtype", HALVES)
    @pytest.mark.parametrize("name", KEEP_DTYPE)
    def test_halves_without_elements_keep_their_dtype(self, name: str, dtype: str, device: Device) -> None:
        """Results of float16 and bfloat16 tensors have their dtype and device, also without elements."""
        if self.backend == "paddle" and device.kind == "cpu":
            return  # it has few kernels of these dtypes on the CPU
        x = ds.from_numpy(np.zeros((0, 3), numpy_dtype(dtype)), device)
        y = KEEP_DTYPE[name](ds.namespace(x), x)
        assert (ds.dtype_of(y), ds.device_of(y)) == (dtype, device)
