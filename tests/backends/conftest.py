"""What the tests of one framework share: the framework is the one that their folder is named after."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import devshim as ds
from devshim.interop import convert


def _simulated(gpus: int) -> Any:
    @pytest.fixture
    def cards(request: pytest.FixtureRequest) -> Iterator[None]:
        """The framework of the folder is the current one, and has simulated cards."""
        with ds.using(request.path.parent.name), ds.simulate(gpus=gpus):
            yield

    return cards


two_cards = _simulated(2)
three_cards = _simulated(3)


@pytest.fixture
def no_long_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """`ds.convert` fails where it does not take a short cut."""

    def gone(*args: object) -> None:
        pytest.fail("it went the long way")

    monkeypatch.setattr(convert, "_the_long_way", gone)
