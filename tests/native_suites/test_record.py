"""The program that runs suites for real GPUs, and its record: no suite runs here."""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import native_plugin
import native_record

import devshim as ds

ROOT = Path(__file__).parents[2]


def entry(test: str, outcome: str, cause: str = "") -> dict[str, str]:
    return {"test": test, "outcome": outcome, "cause": cause}


def test_the_page_has_the_tables_of_the_record() -> None:
    record = json.loads((ROOT / "docs/native-suites.json").read_text(encoding="utf-8"))
    page = (ROOT / "docs/native-suites.md").read_text(encoding="utf-8")
    assert native_record.page(page, record) == page


def test_a_row_counts_each_test_once_and_groups_causes() -> None:
    outcomes = [
        entry("f.py::a", "passed"),
        entry("f.py::a", "failed", "at its end\nmore"),
        entry("f.py::b", "failed", "at its end"),
        entry("f.py::c", "not simulated", "object at 0x12af"),
        entry("f.py::d", "skipped"),
        entry("f.py::e", "passed"),
    ]
    made = native_record.row("torch", "title", {}, outcomes)
    assert [made[name] for name in ("passed", "failed", "not_simulated", "skipped")] == [1, 2, 1, 1]
    assert made["causes"] == [
        {"outcome": "failed", "cause": "at its end", "count": 2, "tests": ["a", "b"]},
        {"outcome": "not simulated", "cause": "object at 0x...", "count": 1, "tests": ["c"]},
    ]


def test_a_share_is_100_only_if_all_passed() -> None:
    assert native_record.share([2999, 1, 0]) == "99.9%"
    assert native_record.share([3, 0, 0]) == "100%"


def test_a_new_row_replaces_that_of_the_same_suite(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    for suite, outcome in (("b", "passed"), ("a", "passed"), ("b", "failed")):
        native_record.merge(path, native_record.row("torch", suite, {}, [entry("t", outcome)]))
    record = json.loads(path.read_text(encoding="utf-8"))
    assert [(each["suite"], each["passed"]) for each in record] == [("a", 1), ("b", 0)]


def raised(*errors: BaseException) -> Any:
    """Return a report and a call of errors, each raised from the next one."""
    for one, other in pairwise(errors):
        one.__cause__ = other
    report = SimpleNamespace(passed=False, skipped=False)
    return report, SimpleNamespace(excinfo=SimpleNamespace(value=errors[0]))


@pytest.mark.parametrize(
    ("errors", "outcome"),
    [
        ([RuntimeError("x")], "failed"),
        ([ds.UnsupportedError("x", "y")], "not simulated"),
        ([RuntimeError("x"), ds.UnsupportedError("x", "y")], "not simulated"),
        ([AssertionError("child: devshim.errors.UnsupportedError: x")], "not simulated"),
    ],
)
def test_what_devshim_refuses_is_not_simulated(errors: list[BaseException], outcome: str) -> None:
    assert native_plugin.outcome(*raised(*errors))["outcome"] == outcome


def test_a_skip_for_what_every_real_gpu_has_is_not_simulated() -> None:
    def skip(reason: str) -> str:
        report = SimpleNamespace(passed=False, skipped=True, longrepr=("file", 1, f"Skipped: {reason}"))
        return native_plugin.outcome(report, raised(RuntimeError())[1])["outcome"]

    assert skip("no MAGMA library detected") == "not simulated"
    assert skip("only for ROCm") == "skipped"
