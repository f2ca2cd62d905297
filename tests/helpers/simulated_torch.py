"""Parts that many tests of simulated GPUs on PyTorch share: the GPU under test, and a fixture that simulates it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import devshim as ds

GPU = "sim:1"
"""PyTorch's name for a GPU that is not the current one, so that a fallback to the current one is noticed."""


@pytest.fixture(autouse=True, scope="module")
def two_gpus_for_module() -> Iterator[None]:
    """Make PyTorch current, with two simulated GPUs, in every test of a module that imports this fixture."""
    ds.use("torch")
    with ds.simulate(gpus=2):
        yield
    ds.use(None)


@contextmanager
def two_cards() -> Iterator[None]:
    """Make PyTorch current in a block, with two simulated GPUs under PyTorch's names for cards."""
    ds.use("torch")
    try:
        with ds.simulate(2, native_names=True):
            yield
    finally:
        ds.use(None)


@pytest.fixture
def gpu(request: pytest.FixtureRequest) -> Iterator[str]:
    """Simulate two GPUs, with PyTorch's names for cards or without, and return the name of the second."""
    ds.use("torch")
    with ds.simulate(2, native_names=request.param == "cuda:1"):
        yield request.param
    ds.use(None)


def is_on_gpu(x: Any) -> bool:
    """Return True if a tensor is on `GPU`."""
    return str(x.device) == GPU
