"""Fixtures of the tests of one framework; the folder of a test names its framework."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import devshim as ds
from devshim.interop import convert
from devshim.registry.registry import load

HERE = Path(__file__).parent


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Of a framework that is not installed, collect only the conformance kit, which reports that."""
    own = collection_path.parent.parent == HERE and collection_path.name.startswith("test_")
    if not own or collection_path.name.startswith("test_conformance"):
        return None
    return find_spec(collection_path.parent.name) is None or None


@pytest.fixture
def current(request: pytest.FixtureRequest) -> Iterator[str]:
    """Make the framework of the test's folder current, and return its name."""
    with ds.using(request.path.parent.name):
        yield request.path.parent.name


@pytest.fixture
def backend(current: str) -> Any:
    """Make the framework of the test's folder current, and return its adapter."""
    return load(current)


def _simulated(gpus: int) -> Any:
    @pytest.fixture
    def cards(current: str) -> Iterator[None]:
        """Make the framework of the test's folder current, with simulated GPUs."""
        with ds.simulate(gpus=gpus):
            yield

    return cards


two_cards = _simulated(2)
three_cards = _simulated(3)


@pytest.fixture
def fast_path_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `ds.convert` fail if it does not take a fast path."""

    def gone(*args: object) -> None:
        pytest.fail("it took the slow path")

    monkeypatch.setattr(convert, "_convert_checked", gone)
