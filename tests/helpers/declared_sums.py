"""The test that an adapter declares those sums over ranks that its engine was seen to compute correctly."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path

import devshim as ds
from devshim.contract.rank_engines import RankEngine

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "world"))
from sums_page import right  # noqa: E402


def declared() -> dict[str, tuple[str, ...]]:
    """Return what the adapter of the current framework declares."""
    name = ds.framework().__name__.split(".")[0]
    module = import_module(f"devshim_backends._{name}.ranks")
    (engine,) = (
        each
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, RankEngine) and each is not RankEngine
    )
    return {dtype: tuple(ops) for dtype, ops in engine.right.items()}


def recorded() -> dict[str, tuple[str, ...]]:
    """Return what ``docs/rank-sums.json`` says of the current framework's engine."""
    name = ds.framework().__name__.split(".")[0]
    record = json.loads((ROOT / "docs" / "rank-sums.json").read_text(encoding="utf-8"))
    return right(next(run["sums"] for run in record if run["name"] == name))


def test_the_adapter_declares_what_was_measured() -> None:
    assert recorded()
    assert declared() == recorded()
