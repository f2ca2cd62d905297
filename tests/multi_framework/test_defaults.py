"""Tests of the page of defaults: it says what each installed framework does, and its check can fail."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import devshim as ds

sys.path.insert(0, str(Path(__file__).parent))

import defaults

DOCS = Path(__file__).parents[2] / "docs"
RECORD: list[dict[str, Any]] = json.loads((DOCS / "defaults.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", [name for name in defaults.TITLES if name in ds.backends()])
def test_the_page_says_what_the_framework_does(name: str, tmp_path: Path) -> None:
    published = [run for run in RECORD if (run["backend"], run["version"]) == (name, str(ds.backends()[name].version))]
    assert published, f"run {defaults.__file__} --measure {name}, then --write"
    result = tmp_path / "result.json"
    command = [sys.executable, "-W", "ignore", defaults.__file__, "--measure", name, str(result)]
    subprocess.run(command, check=True, timeout=300)
    assert json.loads(result.read_text(encoding="utf-8")) == published[0]


def test_the_page_is_what_the_record_makes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check = ["--check", str(DOCS / "defaults.json")]
    assert defaults.main([*check, str(DOCS / "defaults.md")]) == 0
    other = tmp_path / "defaults.md"
    other.write_text((DOCS / "defaults.md").read_text(encoding="utf-8").replace("int32", "int64", 1), encoding="utf-8")
    assert defaults.main([*check, str(other)]) == 1
    assert "--write" in capsys.readouterr().err


def test_a_call_that_differs_despite_the_default_is_a_problem() -> None:
    assert defaults.differing(RECORD) == []
    wrong = copy.deepcopy(RECORD)
    wrong[0]["with"]["ds.zeros(2)"] = "float64"
    assert defaults.differing(wrong) == ["ds.zeros(2) gives float32, float64"]
    assert defaults.differing(RECORD[:-1]) == ["no results of numpy"]
