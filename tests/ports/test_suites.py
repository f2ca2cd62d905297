"""The program that runs the tests of POT and TensorLy, and its record: no suite runs here."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "suites"))

import suite_inputs
import suite_plugin
import suite_record

import devshim as ds

ROOT = Path(__file__).parents[2]


def entry(test: str, outcome: str, text: str = "", **more: Any) -> dict[str, Any]:
    return {"test": test, "outcome": outcome, "error": "E", "text": text, "site": "ot/x.py:3 f", "in": "project"} | more


def test_the_page_has_the_tables_of_the_record() -> None:
    record = json.loads((ROOT / "docs/ports.json").read_text(encoding="utf-8"))
    page = (ROOT / "docs/ports.md").read_text(encoding="utf-8")
    assert suite_record.page(page, record) == page


def test_only_tests_that_pass_without_devshim_count() -> None:
    outcomes = {
        "without": [entry("a", "passed"), entry("b", "failed"), entry("c", "failed", "Timeout"), entry("d", "skipped")],
        "simulated": [entry("a", "failed"), entry("b", "failed")],
        "gpu": [entry("a", "failed"), entry("b", "failed")],
        "ported": [entry("a", "passed")],
    }
    found = suite_record.summary("pot", "torch", {}, outcomes)
    assert (found["passed"], found["failed"], found["slow"], found["skipped"]) == (1, ["b"], ["c"], 1)
    assert found["broken"] == ["a"]
    assert (found["gpu"]["tests"], found["gpu"]["passed"], found["ported"]["passed"]) == (1, 0, 1)
    assert found["gpu"]["causes"][0] == {
        "in": "project",
        "site": "ot/x.py:3 f",
        "error": "E",
        "text": "",
        "count": 1,
        "tests": ["a"],
    }


def test_a_test_that_fails_at_its_end_has_failed() -> None:
    assert not suite_record.tests_that_pass([entry("a", "passed"), entry("a", "failed", when="teardown")])


def test_a_function_with_many_parameter_sets_runs_with_a_few() -> None:
    items = [SimpleNamespace(nodeid=f"a[{i}]") for i in range(9)] + [SimpleNamespace(nodeid="b")]
    assert [each.nodeid for each in suite_plugin.some_of_each(items, 3)] == ["a[0]", "a[3]", "a[6]", "b"]


def test_what_a_test_of_pot_creates_is_on_the_gpu_and_what_is_like_another_array_is_not_moved() -> None:
    class Backend:
        __type_list__ = ()

        def zeros(self, shape: Any, type_as: Any = None) -> Any:
            return ds.zeros(shape, device="cpu")

    for name in suite_inputs.POT_CREATES:
        if not hasattr(Backend, name):
            setattr(Backend, name, lambda self, shape, type_as=None: ds.zeros(shape, device="cpu"))
    with ds.using("numpy"), ds.simulate(gpus=2):
        backend = suite_inputs.with_inputs_on_gpu(Backend())
        assert ds.device_of(backend.zeros(2)) is ds.gpu(1)
        assert ds.device_of(backend.zeros(2, ds.zeros(1, device="gpu:1"))) is ds.cpu()
