from __future__ import annotations

import numpy as np
import pytest

import devshim as ds
from devshim.devices.ranges import require_all_fit, require_fit


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


def test_an_empty_array_fits() -> None:
    require_all_fit(np.zeros((0, 3)), "int8")
