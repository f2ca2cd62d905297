from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import devshim as ds
from devshim.devices.ranges import require_all_fit, require_fit, surely_fit


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (-128, "int8"),
        (127, "int8"),
        (255, "uint8"),
        (2**63 - 1, "int64"),
        (2**64 - 1, "uint64"),
        (-0.5, "uint8"),
        (7, "int4"),
        (1e300, "float16"),
        (float("nan"), "float32"),
        (1j, "complex64"),
        (True, "bool"),
        (300, "bool"),
    ],
)
def test_what_fits(value: complex, name: str) -> None:
    require_fit(value, name)
    require_all_fit(np.asarray([value]), name)


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (-129, "int8"),
        (128, "int8"),
        (-1, "uint8"),
        (2**63, "int64"),
        (8, "int4"),
        (float("inf"), "int64"),
        (1j, "float64"),
    ],
)
def test_what_does_not(value: complex, name: str) -> None:
    with pytest.raises(ds.ConversionError, match=name):
        require_fit(value, name)
    with pytest.raises(ds.ConversionError, match=name):
        require_all_fit(np.asarray([value]), name)


@pytest.mark.parametrize("shape", ["number", "list", "nested", "mixed"])
@pytest.mark.parametrize("name", ["bool", "int8", "uint8", "int64", "uint64", "float16", "complex64"])
@pytest.mark.parametrize("value", [0, 1, True, -1, 127, 128, -129, 2**63, 2**64, 0.5, 1j, float("nan"), "text", None])
def test_a_list_that_surely_fits_is_one_that_fits(value: Any, name: str, shape: str) -> None:
    values = {"number": value, "list": [0, value], "nested": [[0, 1], (1, value)], "mixed": [0, [value]]}[shape]
    if surely_fit(values, name):
        assert type(value) in (int, bool)
        require_fit(value, name)
    elif shape != "mixed":
        fits = type(value) in (int, bool) and (name in ("bool", "float16", "complex64") or in_range(value, name))
        assert not fits


def in_range(value: int, name: str) -> bool:
    limits = np.iinfo(name)
    return bool(limits.min <= value <= limits.max)


def test_an_empty_array_fits() -> None:
    require_all_fit(np.zeros((0, 3)), "int8")
