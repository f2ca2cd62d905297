"""Tests of `namespace`: linear algebra of matrices without elements, and of 16-bit floats."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import devshim as ds
from devshim.testing.base import Kit
from devshim.testing.values import feature

if TYPE_CHECKING:
    from devshim.devices.device import Device

EMPTY: dict[str, tuple[Callable[[Any, Any], Any], tuple[int, ...], Any]] = {
    "det": (lambda xp, x: xp.linalg.det(x), (0, 0), 1.0),
    "det of a stack": (lambda xp, x: xp.linalg.det(x), (3, 0, 0), [1.0, 1.0, 1.0]),
    "det of no matrices": (lambda xp, x: xp.linalg.det(x), (0, 2, 2), []),
    "sign of slogdet": (lambda xp, x: xp.linalg.slogdet(x)[0], (2, 0, 0), [1.0, 1.0]),
    "logarithm of slogdet": (lambda xp, x: xp.linalg.slogdet(x)[1], (2, 0, 0), [0.0, 0.0]),
    "inv": (lambda xp, x: xp.linalg.inv(x), (0, 0), np.zeros((0, 0))),
    "solve": (lambda xp, x: xp.linalg.solve(x, x), (0, 0), np.zeros((0, 0))),
    "pinv": (lambda xp, x: xp.linalg.pinv(x), (0, 3), np.zeros((3, 0))),
    "cholesky": (lambda xp, x: xp.linalg.cholesky(x), (0, 0), np.zeros((0, 0))),
    "eigvalsh": (lambda xp, x: xp.linalg.eigvalsh(x), (0, 0), []),
    "svdvals": (lambda xp, x: xp.linalg.svdvals(x), (0, 3), []),
    "matrix_norm": (lambda xp, x: xp.linalg.matrix_norm(x), (3, 0), 0.0),
    "matrix_norm of columns": (lambda xp, x: xp.linalg.matrix_norm(x, ord=1), (2, 3, 0), [0.0, 0.0]),
    "matrix_norm of rows": (lambda xp, x: xp.linalg.matrix_norm(x, ord=np.inf), (0, 3), 0.0),
    "spectral matrix_norm": (lambda xp, x: xp.linalg.matrix_norm(x, ord=2, keepdims=True), (3, 0), [[0.0]]),
    "smallest matrix_norm of columns": (lambda xp, x: xp.linalg.matrix_norm(x, ord=-1), (0, 3), 0.0),
    "vector_norm": (lambda xp, x: xp.linalg.vector_norm(x, axis=1), (2, 0), [0.0, 0.0]),
    "largest vector_norm": (lambda xp, x: xp.linalg.vector_norm(x, ord=np.inf), (0, 2), 0.0),
    "largest vector_norm of rows": (lambda xp, x: xp.linalg.vector_norm(x, axis=-1, ord=np.inf), (2, 0), [0.0, 0.0]),
    "vector_norm of an inverse power": (lambda xp, x: xp.linalg.vector_norm(x, ord=-1), (0,), np.inf),
    "trace": (lambda xp, x: xp.linalg.trace(x), (0, 0), 0.0),
    "matmul": (lambda xp, x: xp.matmul(x, xp.matrix_transpose(x)), (2, 0), np.zeros((2, 2))),
    "vecdot": (lambda xp, x: xp.vecdot(x, x), (2, 0), [0.0, 0.0]),
}
"""Functions of a tensor without elements: the call, the tensor's shape, and the result."""

HALVES: dict[str, Callable[[Any, Any], Any]] = {
    "matmul": lambda xp, x: xp.matmul(x, x),
    "matmul of a vector": lambda xp, x: xp.matmul(x, x[0]),
    "tensordot": lambda xp, x: xp.tensordot(x, x, axes=1),
    "vecdot": lambda xp, x: xp.vecdot(x, x),
    "matrix_power": lambda xp, x: xp.linalg.matrix_power(x, 3),
}
"""Products of a matrix of 16-bit floats."""

UNEQUAL: dict[str, tuple[Callable[[Any, Any, Any], Any], tuple[int, ...], tuple[int, ...]]] = {
    "tensordot of three axes": (lambda xp, x, y: xp.tensordot(x, y, axes=3), (2, 3, 4), (4, 3, 2)),
    "tensordot of two axes": (lambda xp, x, y: xp.linalg.tensordot(x, y), (2, 3), (3, 2)),
    "tensordot of named axes": (lambda xp, x, y: xp.tensordot(x, y, axes=((0, 1), (-2, 1))), (2, 3), (3, 2)),
    "tensordot of one element": (lambda xp, x, y: xp.tensordot(x, y, axes=1), (2, 1), (3, 2)),
    "vecdot of one element": (lambda xp, x, y: xp.vecdot(x, y), (2, 3), (2, 1)),
    "vecdot of rows": (lambda xp, x, y: xp.linalg.vecdot(x, y, axis=0), (1, 3), (2, 3)),
    "cross of one element": (lambda xp, x, y: xp.linalg.cross(x, y), (3,), (1,)),
}
"""Products along axes of different lengths: the call, and the shapes."""

DECOMPOSED: dict[str, Callable[[Any, Any], Any]] = {
    "det": lambda xp, x: xp.linalg.det(x),
    "inv": lambda xp, x: xp.linalg.inv(x),
    "solve": lambda xp, x: xp.linalg.solve(x, x),
    "cholesky": lambda xp, x: xp.linalg.cholesky(x),
    "slogdet": lambda xp, x: xp.linalg.slogdet(x)[1],
    "eigvalsh": lambda xp, x: xp.linalg.eigvalsh(x),
    "svdvals": lambda xp, x: xp.linalg.svdvals(x),
}
"""Functions of a matrix of 16-bit floats that several frameworks lack, and refuse at the call."""


def _symmetric(xp: Any, x: Any) -> Any:
    return xp.add(x, xp.matrix_transpose(x))


WEIGHTS = np.array([[1, 2, 4], [3, 1, 2], [2, 5, 1]], "float32")
"""Weights of the squares of results, so that each element counts differently."""

FACTORS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "Q of qr": lambda xp, x, w: xp.multiply(xp.linalg.qr(x)[0], w),
    "R of qr": lambda xp, x, w: xp.multiply(xp.linalg.qr(x)[1], w),
    "U of svd": lambda xp, x, w: xp.multiply(xp.linalg.svd(x, full_matrices=False)[0], w),
    "S of svd": lambda xp, x, w: xp.multiply(xp.linalg.svd(x, full_matrices=False)[1], w[0]),
    "Vh of svd": lambda xp, x, w: xp.multiply(xp.linalg.svd(x, full_matrices=False)[2], w),
    "values of eigh": lambda xp, x, w: xp.multiply(xp.linalg.eigh(_symmetric(xp, x))[0], w[0]),
    "vectors of eigh": lambda xp, x, w: xp.multiply(xp.linalg.eigh(_symmetric(xp, x))[1], w),
    "eigvalsh": lambda xp, x, w: xp.multiply(xp.linalg.eigvalsh(_symmetric(xp, x)), w[0]),
    "logarithm of slogdet": lambda xp, x, w: xp.linalg.slogdet(xp.reshape(x, (1, 3, 3)))[1],
    "sign of slogdet": lambda xp, x, w: xp.linalg.slogdet(xp.reshape(x, (1, 3, 3)))[0],
}
"""One result of a function with several, or eigenvalues; the sum of the squares does not depend on signs."""


class NamespaceMatricesTests(Kit):
    """Linear algebra at the edges."""

    @feature("namespace")
    @pytest.mark.parametrize("case", UNEQUAL)
    def test_products_along_axes_of_different_lengths_are_refused(self, case: str, device: Device) -> None:
        """A product sums over pairs of elements, so it does not broadcast, and does not join several axes."""
        call, first, second = UNEQUAL[case]
        x, y = (ds.ones(shape, dtype="float32", device=device) for shape in (first, second))
        with pytest.raises(ds.ArgumentError, match="was given axis"):
            call(ds.namespace(x), x, y)

    @feature("namespace")
    def test_tensordot_of_named_axes_pairs_them_in_order(self, device: Device) -> None:
        """`tensordot` sums over the pairs of axes that it is given, whatever their places in the shapes."""
        ones = ds.ones((2, 2), dtype="float32", device=device)
        assert ds.to_numpy(ds.namespace(ones).tensordot(ones, ones, axes=[[0, 1], [0, 1]])).item() == 4
        a = np.arange(24, dtype="float32").reshape(2, 3, 4)
        x, y = ds.from_numpy(a, device), ds.from_numpy(a.transpose(2, 0, 1), device)
        found = ds.namespace(x).tensordot(x, y, axes=((2, 0), (0, -2)))
        np.testing.assert_array_equal(ds.to_numpy(found), np.tensordot(a, a, ((2, 0), (2, 0))))

    @feature("namespace")
    @pytest.mark.parametrize("case", EMPTY)
    def test_matrices_without_elements_have_numpys_results(self, case: str, device: Device) -> None:
        """Functions of empty matrices return the neutral element, not memory that nothing has written."""
        call, shape, expected = EMPTY[case]
        ds.full(9, 7.5, dtype="float32", device=device)  # leaves numbers in memory that is free then
        x = ds.zeros(shape, dtype="float32", device=device)
        y = call(ds.namespace(x), x)
        assert ds.device_of(y) is device
        np.testing.assert_array_equal(ds.to_numpy(y), np.asarray(expected, "float32"))

    @feature("namespace")
    def test_the_rank_of_no_elements_is_zero(self, device: Device) -> None:
        """`matrix_rank` of matrices without elements is 0, also of a stack."""
        x = ds.zeros((2, 0, 3), dtype="float32", device=device)
        y = ds.namespace(x).linalg.matrix_rank(x)
        assert ds.device_of(y) is device
        assert ds.to_numpy(y).tolist() == [0, 0]

    @feature("namespace")
    def test_the_smallest_of_no_numbers_is_refused(self, device: Device) -> None:
        """Norms that are the smallest of no numbers raise one error on every framework."""
        x = ds.zeros((0, 3), dtype="float32", device=device)
        linalg = ds.namespace(x).linalg
        for norm in (linalg.vector_norm, linalg.matrix_norm):
            with pytest.raises(ds.ArgumentError, match="smallest of no numbers"):
                norm(x, ord=-np.inf)

    @feature("namespace")
    def test_full_matrices_of_an_empty_svd_are_the_identity(self, device: Device) -> None:
        """`svd` with full matrices returns orthogonal ones, also where no element determines them."""
        x = ds.zeros((0, 3), dtype="float32", device=device)
        try:
            vh = ds.namespace(x).linalg.svd(x)[2]
        except ds.UnsupportedError:
            assert self.backend == "mxnet"
            return
        np.testing.assert_array_equal(ds.to_numpy(vh), np.eye(3, dtype="float32"))

    @feature("namespace", "float16")
    @pytest.mark.parametrize("case", HALVES)
    def test_halves_are_multiplied(self, case: str, device: Device) -> None:
        """Products of float16 matrices are float16 on the same device, and no later result is affected."""
        a = np.array([[4, 1], [1, 3]], "float16")
        x = ds.from_numpy(a, device)
        xp = ds.namespace(x)
        if self.backend == "paddle" and device is ds.cpu():
            with pytest.raises(RuntimeError, match="float16"):  # Paddle's host has few kernels for float16
                HALVES[case](xp, x)
            return
        y = HALVES[case](xp, x)
        expected = ds.to_numpy(HALVES[case](xp, ds.from_numpy(a.astype("float32"), device)))
        assert (ds.dtype_of(y), ds.device_of(y)) == ("float16", device)
        np.testing.assert_array_equal(ds.to_numpy(y), expected.astype("float16"))
        assert self.same_numbers(xp.add(x, x), 2 * a)

    @feature("namespace", "float16")
    @pytest.mark.parametrize("case", DECOMPOSED)
    def test_halves_are_decomposed_or_refused_at_the_call(self, case: str, device: Device) -> None:
        """Other functions of float16 matrices return a result that can be read, or raise before there is one."""
        a = np.array([[4, 1], [1, 3]], "float16")
        x = ds.from_numpy(a, device)
        xp = ds.namespace(x)
        try:
            y = DECOMPOSED[case](xp, x)
        except Exception as error:
            if self.backend == "mxnet":
                raise
            assert "half" in str(error).lower() or "float16" in str(error)  # noqa: PT017 - each framework's own error
            return
        expected = ds.to_numpy(DECOMPOSED[case](xp, ds.from_numpy(a.astype("float32"), device)))
        np.testing.assert_allclose(ds.to_numpy(y).astype("float32"), expected, rtol=5e-3, atol=5e-3)

    @feature("namespace", "gradient")
    @pytest.mark.parametrize("case", FACTORS)
    def test_one_result_has_its_gradient(self, case: str, device: Device) -> None:
        """Gradients are right if only one result of a decomposition is used: not zero, and without a crash."""
        a = np.array([[4, 1, 2], [0, 3, 1], [1, 0, 7]], "float64")
        x, w = ds.from_numpy(a.astype("float32"), device), ds.from_numpy(WEIGHTS, device)
        xp, call = ds.namespace(x), FACTORS[case]
        if case[-2:] == "qr" and not hasattr(xp.linalg, "qr"):
            return
        with ds.on(device):
            found = self.gradient(lambda t: call(xp, t, w), x)
        expected = np.zeros_like(a)
        for index in np.ndindex(a.shape):
            step = np.zeros_like(a)
            step[index] = 1e-5
            losses = [np.sum(call(_NumPy, a + sign * step, WEIGHTS.astype("float64")) ** 2) for sign in (1, -1)]
            expected[index] = (losses[0] - losses[1]) / 2e-5
        actual = np.zeros_like(a) if found is None else ds.to_numpy(found)
        np.testing.assert_allclose(actual, expected, rtol=2e-3, atol=2e-3 * max(1, np.abs(expected).max()))

    @feature("namespace", "gradient")
    def test_gradients_of_equal_eigenvalues_are_finite(self, device: Device) -> None:
        """The eigenvalues of a multiple of the identity have their gradient."""
        x = ds.from_numpy(2 * np.eye(3, dtype="float32"), device)
        xp = ds.namespace(x)
        with ds.on(device):
            found = self.gradient(lambda t: xp.linalg.eigvalsh(t), x)
        np.testing.assert_allclose(ds.to_numpy(found), 4 * np.eye(3), atol=1e-5)


class _NumPy:
    """The functions that `FACTORS` calls, of NumPy before 2, too."""

    linalg, multiply, add, reshape = np.linalg, np.multiply, np.add, np.reshape
    matrix_transpose = staticmethod(np.transpose)
