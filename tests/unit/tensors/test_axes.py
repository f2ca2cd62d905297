"""Tests of the axes that the functions of namespaces accept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from devshim_backends._array_api.manipulation import axes_of, axis_of, take_axis

import devshim as ds
from devshim.contract.namespaces import requiring_axis


@pytest.mark.parametrize("axis", [-1, 1, True, np.int64(1), np.array(1)])
def test_an_axis_is_an_integer_of_any_type(axis: Any) -> None:
    assert axis_of(axis, 2, "sum") == 1
    assert axes_of(axis, 2, "sum") == axes_of((axis,), 2, "sum") == (1,)


@pytest.mark.parametrize(
    ("axis", "shown"),
    [
        (1.0, "1.0"),
        ("1", "'1'"),
        (np.float32(1), "a float32"),
        (np.array(1.0), "an ndarray"),
        ([1], r"\[1\]"),
    ],
)
def test_nothing_else_is_an_axis(axis: Any, shown: str) -> None:
    for use, given in ((axis_of, axis), (axes_of, (axis,))):
        with pytest.raises(ds.ArgumentError, match=f"^the axis of sum is {shown}, and it must be an int") as caught:
            use(given, 2, "sum")
        assert isinstance(caught.value, TypeError)


def test_take_needs_an_axis_unless_there_is_one() -> None:
    assert (take_axis(None, 1), take_axis(-1, 2)) == (0, 1)
    for count in (0, 2):
        with pytest.raises(ds.ArgumentError, match=f"take was given no axis for a tensor of {count} dimensions"):
            take_axis(None, count)


def test_take_of_a_framework_is_checked() -> None:
    take = requiring_axis(np.take)
    assert take([0, 1, 2], [2]).tolist() == take(np.arange(3), [2], axis=0, mode="wrap").tolist() == [2]
    with pytest.raises(ds.ArgumentError, match="take was given no axis"):
        take(np.ones((2, 2)), [0])
