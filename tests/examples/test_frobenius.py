"""Tests that the textbooks' exercise runs on each framework with the same code."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import ModuleType

import numpy as np
import pytest
from example_programs import load_example

import devshim as ds

BACKEND = os.environ.get("DEVSHIM_BACKEND") or "numpy"


@pytest.fixture
def example() -> ModuleType:
    return load_example("frobenius")


@pytest.fixture(autouse=True)
def _two_cards() -> Iterator[None]:
    ds.use(BACKEND)
    ds.simulate(2)
    yield
    ds.use(None)


@pytest.mark.parametrize("device", ["cpu", "gpu:1"])
def test_both_ways_find_the_norms(example: ModuleType, device: str) -> None:
    products = example.Products(ds.device(device), size=20)
    expected = np.linalg.norm(ds.to_numpy(products._left) @ ds.to_numpy(products._right))
    with ds.transfers() as copies:
        np.testing.assert_allclose(products.one_by_one(7), np.full(7, expected), rtol=1e-4)
        assert copies.count == 7
        np.testing.assert_allclose(products.at_the_end(7), np.full(7, expected), rtol=1e-4)
        assert copies.count == 8
    assert {str(record.source) for record in copies.records} == {device}


def test_as_a_program(example: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    example.main([BACKEND, "--products", "3"])
    reported = capsys.readouterr().out
    assert f"3 products on gpu:0 (simulated), {BACKEND}:" in reported
    assert "one by one:     3 transfers" in reported
    assert "at the end:     1 transfer" in reported
