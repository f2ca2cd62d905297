"""Fixtures of the tests of TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import devshim as ds
from devshim.registry import registry


@pytest.fixture
def adapter() -> Any:
    """Return TensorFlow's adapter."""
    return registry.load("tensorflow")


@pytest.fixture
def two_small_gpus() -> Iterator[None]:
    """Make TensorFlow current, with two simulated GPUs of 64 MiB."""
    ds.use("tensorflow")
    with ds.simulate(gpus=2, memory="64MiB"):
        yield
    ds.use(None)


@pytest.fixture
def matrix(two_small_gpus: None) -> Any:
    """Return a matrix of 16 KiB on the second simulated GPU."""
    return ds.ones((64, 64), device="gpu:1")
