"""`asarray` of integers that do not fit int64, and of lists without an end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import devshim as ds
from devshim.testing.base import Kit
from devshim.testing.values import feature

if TYPE_CHECKING:
    from devshim.devices.device import Device

WIDE: dict[str, tuple[object, int]] = {
    "a number": (2**63, 2**63),
    "a list": ([2**64 - 1], 2**64 - 1),
    "beside a negative number": ([2**63, -1], 2**63),
    "in rows": ([[1, 2], (True, 2**63)], 2**63),
    "beyond 64 bits": ([1, 2**64], 2**64),
    "below int64": (-(2**63) - 1, -(2**63) - 1),
    "beside a number of NumPy": ([np.int64(1), 2**64], 2**64),
}
"""Integers beyond int64: the values, and the integer that does not fit."""


class WideIntegerTests(Kit):
    """Integers that not every dtype can represent."""

    @feature("create")
    @pytest.mark.parametrize("values", WIDE)
    def test_asarray_keeps_or_refuses_wide_integers(self, values: str, device: Device) -> None:
        """Without a dtype, integers beyond int64 are exact, or refused; they never become floats."""
        given, wide = WIDE[values]
        refusal, error = f"{wide} does not fit into int64\n\nHint: pass a floating dtype", ""
        try:
            x = ds.asarray(given, device=device)
            assert (ds.dtype_of(x), ds.to_numpy(x).tolist()) == ("uint64", given)
        except ds.ConversionError as found:
            error = str(found)
        assert error == refusal or not error
        with pytest.raises(ds.ConversionError, match=f"{wide} does not fit into int32"):
            ds.asarray(given, dtype="int32", device=device)

    @feature("create")
    @pytest.mark.parametrize("dtype", ["float32", "float64", "bool"])
    @pytest.mark.parametrize("values", WIDE)
    def test_wide_integers_are_rounded_in_a_floating_dtype(self, values: str, dtype: str, device: Device) -> None:
        """As in a list that also contains floats, without a dtype."""
        given, wide = WIDE[values]
        x = ds.asarray(given, dtype=dtype, device=device)
        assert ds.dtype_of(x) == dtype
        assert self.same_numbers(x, np.array(given, float).astype(dtype))
        assert self.same_numbers(ds.asarray([wide, 0.5], device=device), [float(wide), 0.5])

    @feature("create")
    @pytest.mark.parametrize("values", [2**2000, [2**2000], [2**20000, 1.5], [[1], [-(2**2000)]]], ids=lambda _: "")
    def test_integers_beyond_floats_are_refused(self, values: Any, device: Device) -> None:
        """No dtype can represent them, and the error does not write their digits."""
        for dtype in ("float32", "float64"):
            with pytest.raises(ds.ConversionError, match=f"an integer of 20+1 bits does not fit into {dtype}"):
                ds.asarray(values, dtype=dtype, device=device)

    @feature("create")
    @pytest.mark.parametrize("dtype", [None, "float32"], ids=str)
    def test_a_list_that_contains_itself_is_refused(self, dtype: str | None, device: Device) -> None:
        """It has no end."""
        values: list[Any] = [1.0]
        values.append((values,))
        with pytest.raises(ds.ConversionError, match="contains itself"):
            ds.asarray(values, dtype=dtype, device=device)
