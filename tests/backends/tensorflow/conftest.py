"""Fixtures of the tests of TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import devshim as ds


@pytest.fixture
def two_small_gpus(current: str) -> Iterator[None]:
    """Make TensorFlow current, with two simulated GPUs of 64 MiB."""
    with ds.simulate(gpus=2, memory="64MiB"):
        yield


@pytest.fixture
def matrix(two_small_gpus: None) -> Any:
    """Return a matrix of 16 KiB on the second simulated GPU."""
    return ds.ones((64, 64), device="gpu:1")
