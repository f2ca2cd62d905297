"""Tests that 64-bit tensors are computed with 64 bits, in `run` and by the functions of a namespace."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import devshim as ds
from devshim.testing.base import Kit
from devshim.testing.values import feature, hook

if TYPE_CHECKING:
    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device

WIDE: dict[str, tuple[np.ndarray, complex]] = {
    "float64": (np.array([[0.1, 1 / 3], [1e300, 2**-40]]), 0.1),
    "int64": (np.array([[2**40 + 1, -(2**33)], [3, 0]]), 3),
    "complex128": (np.array([[0.1 + 1e-300j, 1 / 3]]), 0.1),
}
"""Values by dtype that 32 bits cannot represent, and a number with which to multiply them."""

DTYPES = ["float64", "int64", pytest.param("complex128", marks=feature("complex"))]

FUNCTIONS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[np.ndarray], Any]]] = {
    "sum": (lambda xp, x: xp.sum(x), np.sum),
    "mean": (lambda xp, x: xp.mean(x, axis=0), lambda a: a.mean(0)),
    "max": (lambda xp, x: xp.max(x), np.max),
    "std": (lambda xp, x: xp.std(x), np.std),
    "exp": (lambda xp, x: xp.exp(x), np.exp),
    "cumulative_sum": (lambda xp, x: xp.cumulative_sum(x, axis=1), lambda a: a.cumsum(1)),
    "multiply": (lambda xp, x: xp.multiply(x, 0.1), lambda a: a * 0.1),
    "where": (lambda xp, x: xp.where(xp.greater(x, 0.2), x, xp.negative(x)), lambda a: np.where(a > 0.2, a, -a)),
    "matmul": (lambda xp, x: xp.matmul(x, xp.matrix_transpose(x)), lambda a: a @ a.T),
    "concat": (lambda xp, x: xp.concat([x, x], axis=0), lambda a: np.concatenate([a, a])),
    "take": (lambda xp, x: xp.take(x, xp.argmax(x, axis=0), axis=1), lambda a: a[:, a.argmax(0)]),
}
"""Functions of a namespace, and NumPy's for the expected numbers."""


class WidthTests(Kit):
    """64 bits in, 64 bits out."""

    def wide(self, dtype: str, device: Device) -> tuple[Tensor, Callable[[Tensor], Tensor], np.ndarray]:
        """Return a tensor of a dtype, a function of it, and the expected result."""
        array, factor = WIDE[dtype]

        def times(x: Tensor) -> Tensor:
            return x * factor

        return ds.from_numpy(array, device), times, array * factor

    def exact(self, x: Tensor, expected: np.ndarray, device: Device) -> bool:
        """Return True if a tensor is on a device, with the numbers and the dtype of an array."""
        assert (ds.dtype_of(x), ds.device_of(x)) == (str(expected.dtype), device)
        assert np.allclose(ds.to_numpy(x), expected, rtol=1e-15, atol=0)
        return True

    @feature("float64", "follow_data")
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_run_keeps_64_bits(self, dtype: str, device: Device) -> None:
        """The framework's own operators give 64-bit results, for a tensor, in a tree, by keyword and in `run`."""
        x, fn, expected = self.wide(dtype, device)

        def in_run(x: Tensor) -> Tensor:
            return ds.run(fn, x)

        assert self.exact(ds.run(fn, x), expected, device)
        assert self.exact(ds.run(lambda tree: fn(tree["x"][0]), {"x": [x]}), expected, device)
        assert self.exact(ds.run(in_run, x=x), expected, device)

    @feature("float64", "several")
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_parallel_keeps_64_bits(self, dtype: str, away: tuple[Device, Device]) -> None:
        """Each function of `parallel` computes with 64 bits, and `all_reduce_` adds the results with 64 bits."""
        x, fn, expected = self.wide(dtype, away[0])
        found = ds.parallel([fn, fn], [x, ds.copy(x, away[1])])
        for y, device in zip(found, away, strict=True):
            assert self.exact(y, expected, device)
        for y, device in zip(ds.all_reduce_(found), away, strict=True):
            assert self.exact(y, expected + expected, device)

    @feature("float64", "trace_run")
    def test_run_keeps_64_bits_when_compiled(self, device: Device) -> None:
        """Operators in `run` give 64-bit results even inside a compiled function."""
        x, fn, expected = self.wide("float64", device)
        assert self.exact(self.compiled(lambda x: ds.run(fn, x))(x), expected, device)

    @feature("float64", "value_and_grad", "data_parallel")
    def test_gradients_keep_64_bits(self, away: tuple[Device, Device]) -> None:
        """The value and the gradient of float64 are float64, on one device and over two."""
        weights = ds.from_numpy(np.array([0.1, 1 / 3]), away[0])
        rows = np.arange(6.0).reshape(3, 2) / 7

        def loss(w: Tensor, x: Tensor) -> Tensor:
            xp = ds.namespace(w)
            return xp.mean(xp.sum(x * w * 0.1, axis=1))

        step = ds.value_and_grad(loss)
        expected = np.mean((rows * [0.1, 1 / 3] * 0.1).sum(1)), rows.mean(0) * 0.1
        for fn in (step, ds.data_parallel(step, list(away))):
            value, grad = fn(weights, ds.from_numpy(rows, away[0]))
            assert (ds.dtype_of(value), ds.dtype_of(grad)) == ("float64", "float64")
            assert np.allclose(ds.to_numpy(value), expected[0], rtol=1e-14)
            assert np.allclose(ds.to_numpy(grad), expected[1], rtol=1e-14)

    @feature("float64", "create", "random", "namespace", "follow_data")
    def test_defaults_are_the_same_in_run(self, device: Device) -> None:
        """Dtypes that the program does not name are those outside, and float32 stays float32 together with int64."""

        def dtypes(_: object) -> list[str]:
            made = ds.zeros(1), ds.arange(2), ds.asarray(0.5), ds.random.uniform(size=1), ds.namespace().ones(1)
            return [ds.dtype_of(x) for x in made]

        assert ds.run(dtypes, self.wide("float64", device)[0]) == dtypes(None)
        x, labels = ds.ones(2, dtype="float32", device=device), ds.from_numpy(np.arange(2), device)
        assert ds.dtype_of(ds.run(lambda x, labels: x * 0.5, x, labels)) == "float32"

    @feature("float64", "follow_data")
    @hook("global_state")
    def test_run_restores_the_frameworks_state(self, device: Device) -> None:
        """After `run` of 64-bit tensors, even after an error, the framework's settings are as before."""
        x, _, _ = self.wide("float64", device)
        before = self.global_state()
        ds.run(lambda x: x, x)
        assert self.global_state() == before

        def fail(x: Tensor) -> None:
            raise KeyError

        with pytest.raises(KeyError):
            ds.run(fail, x)
        assert self.global_state() == before

    @feature("float64", "namespace")
    @pytest.mark.parametrize("name", FUNCTIONS)
    def test_functions_of_a_namespace_keep_64_bits(self, name: str, device: Device) -> None:
        """The functions of `namespace` compute with the 64 bits of their arguments."""
        fn, numpys = FUNCTIONS[name]
        array = np.array([[0.1, 1 / 3], [0.25, 2**-40]])
        x = ds.from_numpy(array, device)
        y = fn(ds.namespace(x), x)
        assert (ds.dtype_of(y), ds.device_of(y)) == ("float64", device)
        assert np.allclose(ds.to_numpy(y), numpys(array), rtol=1e-14, atol=0)

    @feature("float64", "namespace")
    def test_functions_of_a_namespace_keep_64_bit_integers(self, device: Device) -> None:
        """Integers beyond 32 bits are added and multiplied exactly, also together with float32."""
        array = WIDE["int64"][0]
        x = ds.from_numpy(array, device)
        xp = ds.namespace(x)
        assert self.exact(xp.add(x, x), array + array, device)
        assert self.exact(xp.multiply(x, 3), array * 3, device)
        assert self.exact(xp.sum(x, axis=0), array.sum(0), device)
        y = ds.ones((2, 2), dtype="float32", device=device)
        assert ds.dtype_of(xp.where(xp.greater(x, 2**33), y, xp.zeros_like(y))) == "float32"
