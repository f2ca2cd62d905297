"""Tests of tensors whose elements share memory."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import devshim as ds
from devshim.contract.overlaps import overlaps


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3), (3, 1, 2), (0, 3), (2, 2, 2)])
@pytest.mark.parametrize("strides", [(0, 0, 0), (1, 1, 1), (1, 3, 9), (6, -2, 1), (2, 3, 12), (3, 2, 1), (0, 1, 0)])
def test_it_compares_the_addresses(shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    steps = strides[: len(shape)]
    addresses = [sum(i * step for i, step in zip(index, steps, strict=True)) for index in np.ndindex(*shape)]
    assert overlaps(shape, steps) is (len(set(addresses)) < len(addresses))


@pytest.mark.parametrize("number", [0, 1])
def test_all_reduce_refuses_them_before_it_writes(number: int) -> None:
    with ds.using("numpy"):
        trees = [{"a": np.ones(3), "b": np.ones(3)} for _ in range(2)]
        trees[number]["b"] = as_strided(np.ones(1), (3,), (0,))
        with pytest.raises(ds.ArgumentError, match=rf"elements of tensor {number} at \['b'\] share memory"):
            ds.all_reduce_(trees)
        assert [tree["a"].tolist() for tree in trees] == [[1, 1, 1]] * 2


def test_assign_replaces_them() -> None:
    with ds.using("numpy"):
        before = as_strided(np.ones(1), (3,), (0,))
        after = ds.assign({"b": before}, {"b": np.arange(3.0)})
        assert after["b"].tolist() == [0, 1, 2]
        assert before.tolist() == [1, 1, 1]
