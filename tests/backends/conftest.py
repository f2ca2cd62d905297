"""Simulated cards for the tests of one framework: the one that the name of their file says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import devshim as ds


@pytest.fixture
def three_cards(request: pytest.FixtureRequest) -> Iterator[None]:
    """The framework of ``test_<framework>_*.py`` is the current one, and has three simulated cards."""
    with ds.using(request.path.stem.split("_")[1]), ds.simulate(gpus=3):
        yield
