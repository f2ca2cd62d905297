"""Fixtures of the tests of one framework; the folder of a test names its framework."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import devshim as ds
from devshim.interop import convert


def _simulated(gpus: int) -> Any:
    @pytest.fixture
    def cards(request: pytest.FixtureRequest) -> Iterator[None]:
        """Make the framework of the test's folder current, with simulated GPUs."""
        with ds.using(request.path.parent.name), ds.simulate(gpus=gpus):
            yield

    return cards


two_cards = _simulated(2)
three_cards = _simulated(3)


@pytest.fixture
def no_long_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `ds.convert` fail if it does not take a fast path."""

    def gone(*args: object) -> None:
        pytest.fail("it took the slow path")

    monkeypatch.setattr(convert, "_convert_checked", gone)
