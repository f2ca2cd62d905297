"""Tests of `namespace`: values with NaNs, and those of dtypes and shapes for which frameworks have other answers."""

from __future__ import annotations

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


class NamespaceValuesTests(Kit):
    """The values of the array API's functions on every framework."""

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

    @feature("namespace")
    def test_sets_keep_nans(self, device: Device) -> None:
        """`unique_values` returns each NaN, last."""
        xp = ds.namespace(ds.from_numpy(NANS, device))
        self._same(xp.unique_values(ds.from_numpy(NANS, device)), np.unique(NANS, equal_nan=False), device)

    def _same(self, y: Any, expected: Any, device: Device) -> None:
        """Check the values, shape, kind of dtype and device of a result."""
        found = ds.to_numpy(y)
        assert found.shape == np.shape(expected)
        assert found.dtype.kind == expected.dtype.kind
        assert np.allclose(found, expected, rtol=2e-5, equal_nan=True)
        assert ds.device_of(y) is device
