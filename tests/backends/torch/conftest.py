"""Fixtures that several test files of this folder share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import devshim as ds
from devshim.registry.registry import load


@pytest.fixture
def backend() -> Iterator[Any]:
    """Make PyTorch the current framework, and return its adapter."""
    with ds.using("torch"):
        yield load("torch")
