"""Tests of blocks that are left before they are entered: `timer`, and the blocks that observe copies and calls."""

from __future__ import annotations

from typing import Any

import pytest

import devshim as ds

BLOCKS = {
    "timer": lambda: ds.timer("cpu"),
    "transfers": ds.transfers,
    "guard": lambda: ds.guard("error"),
    "explain": lambda: ds.explain(file=None),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_that_is_not_open_cannot_be_left(name: str) -> None:
    block: Any = BLOCKS[name]()
    with pytest.raises(ds.ArgumentError, match=f"ds.{name} is left, but it is not open"):
        block.__exit__(None, None, None)
    with block:
        pass
    with pytest.raises(ds.ArgumentError, match=f"ds.{name} is left, but it is not open"):
        block.__exit__(None, None, None)
    with ds.explain(file=None) as lines, ds.transfers() as log:  # the refusals changed no count of open blocks
        ds.copy(ds.ones(2), "cpu")
    assert len(lines) == 2
    assert log.count == 1
