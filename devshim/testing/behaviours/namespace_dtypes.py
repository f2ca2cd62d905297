"""Tests of `namespace`: functions of every dtype, of complex numbers, and the dtypes of indices."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import devshim as ds
from devshim.testing.base import Kit
from devshim.testing.values import DTYPES, OPTIONAL, feature, numbers, numpy_dtype

if TYPE_CHECKING:
    from devshim.devices.device import Device

COMPLEX = np.array([[0, 2j, 0], [0.5 - 2.5j, 1 + 1j, -1.5]])
"""Complex numbers: zero, and some with a zero part."""

OF_COMPLEX: dict[str, tuple[Callable[[Any, Any], Any], Callable[[np.ndarray], Any]]] = {
    "round": (lambda xp, x: xp.round(x), np.round),
    "log2": (lambda xp, x: xp.log2(x), np.log2),
    "log10": (lambda xp, x: xp.log10(x), np.log10),
    "conj": (lambda xp, x: xp.conj(x), np.conj),
    "astype bool": (lambda xp, x: xp.astype(x, xp.bool), lambda a: a.astype(bool)),
    "any": (lambda xp, x: xp.any(x, axis=1), lambda a: a.any(1)),
    "all": (lambda xp, x: xp.all(x, axis=0), lambda a: a.all(0)),
    "count_nonzero": (lambda xp, x: xp.count_nonzero(x, axis=1), lambda a: np.count_nonzero(a, 1)),
    "nonzero": (lambda xp, x: xp.nonzero(x)[1], lambda a: a.nonzero()[1]),
    "mean of nothing": (lambda xp, x: xp.mean(x[:0]), lambda a: np.full((), np.nan + 1j * np.nan, a.dtype)),
    "mean of no rows": (
        lambda xp, x: xp.mean(x[:0], axis=0, keepdims=True),
        lambda a: np.full((1, 3), np.nan + 1j * np.nan, a.dtype),
    ),
}
"""Functions of complex numbers, each with NumPy's answer."""

INDICES: dict[str, Callable[[Any, Any], Any]] = {
    "argmax": lambda xp, x: xp.argmax(x),
    "argsort": lambda xp, x: xp.argsort(x),
    "nonzero": lambda xp, x: xp.nonzero(x)[0],
    "searchsorted": lambda xp, x: xp.searchsorted(x, x),
    "count_nonzero": lambda xp, x: xp.count_nonzero(x, axis=0),
    "indices of unique_all": lambda xp, x: xp.unique_all(x).indices,
    "unique_counts": lambda xp, x: xp.unique_counts(x).counts,
    "unique_inverse": lambda xp, x: xp.unique_inverse(x).inverse_indices,
    "unique_inverse of nothing": lambda xp, x: xp.unique_inverse(x[:0]).inverse_indices,
    "unique_counts of nothing": lambda xp, x: xp.unique_counts(x[:0]).counts,
}
"""Functions whose result has the dtype of indices."""


class NamespaceDtypesTests(Kit):
    """Functions that frameworks lack for some dtypes, or compute differently."""

    @feature("namespace")
    @pytest.mark.parametrize("call", ["tril", "triu"])
    @pytest.mark.parametrize("dtype", [*DTYPES, *OPTIONAL])
    def test_triangles_of_every_dtype(self, dtype: str, call: str, device: Device) -> None:
        """`tril` and `triu` keep the dtype, also without elements."""
        if dtype in OPTIONAL and self.backend == "torch":
            return  # PyTorch has few functions for them
        a = numbers((2, 3), dtype)
        try:
            x = ds.from_numpy(a, device)
        except ds.ConversionError:
            assert dtype in OPTIONAL
            return
        for k in (-1, 0, 2):
            y = getattr(ds.namespace(x), call)(x, k=k)
            assert (ds.dtype_of(y), ds.device_of(y)) == (dtype, device)
            assert ds.to_numpy(y).tolist() == getattr(np, call)(a, k).tolist()
            assert self.adapter.shape(getattr(ds.namespace(x), call)(x[:0], k=k)) == (0, 3)

    @feature("namespace", "complex")
    @pytest.mark.parametrize("dtype", ["complex64", "complex128"])
    @pytest.mark.parametrize("call", OF_COMPLEX)
    def test_functions_of_complex_numbers(self, call: str, dtype: str, device: Device) -> None:
        """Both parts count: a number without a real part is not zero, and the mean of nothing is not a number."""
        a = COMPLEX.astype(dtype)
        x, (compute, expected) = ds.from_numpy(a, device), OF_COMPLEX[call]
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            y, wanted = compute(ds.namespace(x), x), np.asarray(expected(a))
        assert ds.device_of(y) is device
        if wanted.dtype.kind == "c":
            assert ds.dtype_of(y) == dtype
        assert np.allclose(ds.to_numpy(y), wanted, rtol=1e-5, equal_nan=True)

    @feature("namespace", "complex")
    def test_casts_keep_the_imaginary_part(self, device: Device) -> None:
        """`astype` from a complex to a real dtype is refused, which the standard does not permit."""
        xp, x = ds.namespace(), ds.from_numpy(COMPLEX, device)
        for dtype in (xp.float32, xp.float64, xp.int32):
            with pytest.raises(ds.ConversionError, match="imaginary"):
                xp.astype(x, dtype)
            with pytest.raises(ds.ConversionError, match="imaginary"):
                xp.asarray(x, dtype=dtype)
        assert ds.to_numpy(xp.astype(x, xp.complex64)).tolist() == COMPLEX.tolist()

    @feature("namespace", "complex")
    @pytest.mark.parametrize("call", ["cumulative_sum", "cumulative_prod", "linalg.trace"])
    def test_sums_keep_the_imaginary_part(self, call: str, device: Device) -> None:
        """A sum or product of complex numbers in a real dtype is refused, as such a cast is."""
        xp, x = ds.namespace(), ds.from_numpy(COMPLEX.astype("complex64"), device)
        fn = getattr(xp.linalg if "." in call else xp, call.rpartition(".")[2])
        options = {"axis": 0} if call.startswith("cumulative") else {}
        for dtype in (xp.float32, xp.float64, xp.int32, xp.bool):
            with pytest.raises(ds.ConversionError, match="no imaginary part"):
                fn(x, dtype=dtype, **options)
        same, wide = fn(x, **options), fn(x, dtype=xp.complex128, **options)
        assert (ds.dtype_of(same), ds.dtype_of(wide)) == ("complex64", "complex128")
        assert np.allclose(ds.to_numpy(same), ds.to_numpy(wide))

    @feature("namespace")
    @pytest.mark.parametrize("call", INDICES)
    def test_indices_have_one_dtype(self, call: str, device: Device) -> None:
        """Indices and counts have the dtype that the namespace names for them, whatever tensor they are of."""
        xp = ds.namespace()
        x = ds.from_numpy(numbers((4,), "int32"), device)
        try:
            found = INDICES[call](xp, x)
        except NotImplementedError:
            assert call == "indices of unique_all"  # PyTorch lacks it
            return
        assert getattr(xp, ds.dtype_of(found)) == xp.__array_namespace_info__().default_dtypes()["indexing"]

    @feature("namespace")
    @pytest.mark.parametrize("dtype", ["int8", "uint8", "int32"])
    def test_small_integers_are_searched_and_conjugated(self, dtype: str, device: Device) -> None:
        """`searchsorted` and `conj` take integers of every width."""
        a = numbers((4,), dtype)
        x = ds.from_numpy(a, device)
        xp = ds.namespace(x)
        assert ds.to_numpy(xp.searchsorted(x, x)).tolist() == [0, 1, 2, 3]
        y = xp.conj(x)
        assert (ds.dtype_of(y), ds.to_numpy(y).tolist()) == (dtype, a.tolist())
        assert ds.to_numpy(y).dtype == numpy_dtype(dtype)
