"""The test that an adapter declares those sums over ranks that its engine was seen to compute correctly."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import devshim as ds
from devshim.contract.rank_engines import RankEngine

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "world"))
from engine_sums import code_of  # noqa: E402
from sums_page import loses_nan, right  # noqa: E402


def engine_class() -> type[RankEngine]:
    """Return the engine of the current framework's adapter."""
    name = ds.framework().__name__.split(".")[0]
    module = import_module(f"devshim_backends._{name}.ranks")
    (found,) = (
        each
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, RankEngine) and each is not RankEngine
    )
    return found


def run_of(name: str) -> dict[str, Any]:
    """Return what ``docs/rank-sums.json`` says of an engine."""
    record = json.loads((ROOT / "docs" / "rank-sums.json").read_text(encoding="utf-8"))
    found: dict[str, Any] = next(run for run in record if run["name"] == name)
    return found


def test_the_adapter_declares_what_was_measured() -> None:
    sums = run_of(ds.framework().__name__.split(".")[0])["sums"]
    engine = engine_class()
    assert right(sums)
    assert {dtype: tuple(ops) for dtype, ops in engine.right.items()} == right(sums)
    assert engine.keeps_nan is not loses_nan(sums)


@pytest.mark.parametrize("engine", ["own", "portable"])
def test_the_record_is_of_this_version_and_code(engine: str) -> None:
    """`nox -s rank_sums` measures again."""
    name = ds.framework().__name__.split(".")[0] if engine == "own" else engine
    run = run_of(name)
    assert run["code"] == code_of(name)
    assert (
        engine == "portable" or run["version"].partition("+")[0] == str(ds.backends()[name].version).partition("+")[0]
    )
