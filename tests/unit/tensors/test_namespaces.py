"""Tests of the creation functions in a namespace of the array API."""

from __future__ import annotations

import numpy as np

import devshim as ds


def test_from_dlpack_takes_tensors_of_other_libraries_and_moves_its_own(cards: object) -> None:
    xp = ds.namespace()
    x = ds.ones(3)
    assert xp.from_dlpack(x) is x
    assert ds.device_of(xp.from_dlpack(x)) is ds.cpu()
    there = xp.from_dlpack(x, device="gpu:1")
    assert ds.device_of(there) is ds.gpu(1)
    assert xp.from_dlpack(there) is there
    assert ds.device_of(xp.from_dlpack(there, device="cpu")) is ds.cpu()
    assert not np.shares_memory(xp.from_dlpack(x, copy=True), x)
