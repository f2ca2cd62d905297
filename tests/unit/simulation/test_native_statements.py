"""Tests of the comparison with a real card: it fails for each kind of change, and the recordings are complete."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "native" / "statements"))

from compare import alike, problems, recording
from differences import DIFFERENCES
from tables import GUIDE, section

FRAMEWORKS = sorted(DIFFERENCES)


def as_listed(framework: str) -> dict[str, dict[str, Any]]:
    """Return results that differ from the recording only in the listed statements."""
    recorded = recording(framework)["results"]
    both = "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
    found = {}
    for statement, result in recorded.items():
        found[statement] = result
        for difference in DIFFERENCES[framework]:
            if statement in difference.statements:
                found[statement] = {
                    "error": "UnsupportedError",
                    "bases": [],
                    "text": "simulated GPUs do not support it",
                }
            elif difference.is_recorded(result):
                found[statement] = {**result, "text": both}
    return found


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_listed_differences_are_no_problem(framework: str) -> None:
    assert list(problems(framework, as_listed(framework))) == []


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_each_difference_that_vanishes_is_one(framework: str) -> None:
    recorded = recording(framework)["results"]
    found = "\n".join(problems(framework, recorded))
    for difference in DIFFERENCES[framework]:
        assert difference.reason in found
        for statement in difference.statements:
            assert f"{statement} does not differ" in found


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_each_new_difference_is_one(framework: str) -> None:
    listed = as_listed(framework)
    for statement, result in recording(framework)["results"].items():
        if listed[statement] is result:
            other = {"value": "another"} if "error" in result else {"error": "OSError", "bases": [], "text": "no"}
            found = list(problems(framework, {**listed, statement: other}))
            assert len(found) == 1
            assert found[0].startswith(statement)


def test_a_reason_without_a_statement_is_a_problem() -> None:
    recorded = {name: result for name, result in recording("torch")["results"].items() if "text" not in result}
    assert any("no statement differs" in each for each in problems("torch", recorded, recorded))


def test_the_guide_lists_the_differences() -> None:
    assert section() in GUIDE.read_text(), "python tests/native/statements/tables.py writes the section"


def test_errors_are_compared_as_a_program_catches_them() -> None:
    real = {"error": "RuntimeError", "bases": ["Exception"], "text": "Found cpu! More\nlines"}
    own = {"error": "DeviceMismatchError", "bases": ["ValueError", "RuntimeError"], "text": "Found cpu! (in aten::add)"}
    assert alike("f()", real, own)
    assert not alike("f()", real, {**own, "bases": ["ValueError"]})
    assert not alike("f()", real, {**own, "text": "Found sim:0!"})
    assert not alike("f()", real, {"value": "1"})


def test_values_are_compared_by_their_text_but_for_addresses() -> None:
    assert alike("f()", {"value": "<Stream 0x1>"}, {"value": "<Stream 0xab>"})
    assert not alike("f()", {"value": "1"}, {"value": "1", "printed": "a line"})
    assert alike("torch.cuda.memory_cached()", {"value": "512"}, {"value": "1024"})
    assert not alike("torch.cuda.memory_cached()", {"value": "512"}, {"value": "1.0"})
