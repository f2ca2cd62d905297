"""Tests of the mutation run itself: what it changes, what it leaves unchanged, and which tests judge a line."""

from __future__ import annotations

import ast
import importlib.util
import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import judge
import mutate
from report import page, record

SOURCE = '''"""A module."""
TYPE_CHECKING = False
if TYPE_CHECKING:
    N = 1


def f(x: int = 2, y: "Literal[3]" = None) -> bool:
    if not x and (y is None or x <= 4):
        return x == 1
    return None
'''


@pytest.fixture
def found(tmp_path):
    (tmp_path / "module.py").write_text(SOURCE)
    return mutate.mutants(tmp_path, "module.py")


def test_each_operator_is_changed_once(found):
    assert sorted((each.line, each.change) for each in found) == [
        (7, "2 -> 3"),
        (8, "4 -> 5"),
        (8, "<= -> <"),
        (8, "and -> or"),
        (8, "is -> is not"),
        (8, "not removed"),
        (8, "or -> and"),
        (9, "1 -> 2"),
        (9, "== -> !="),
        (9, "return None"),
    ]


def test_what_only_a_type_checker_reads_stays(tmp_path):
    (tmp_path / "module.py").write_text("TYPE_CHECKING: bool = False\nif TYPE_CHECKING:\n    x = 1\ny: bool = False\n")
    assert [each.line for each in mutate.mutants(tmp_path, "module.py")] == [4]


def test_a_returned_false_becomes_true_and_not_none(tmp_path):
    (tmp_path / "module.py").write_text("def f():\n    return False\n")
    assert [each.change for each in mutate.mutants(tmp_path, "module.py")] == ["False -> True"]


def test_every_mutant_is_another_program_that_can_be_read(found):
    texts = {each.source(SOURCE.encode()) for each in found}
    assert len(texts) == len(found)
    trees = {ast.dump(ast.parse(text)) for text in texts}
    assert len(trees) == len(found)
    assert ast.dump(ast.parse(SOURCE)) not in trees


def test_columns_are_counted_in_bytes(tmp_path):
    (tmp_path / "module.py").write_text("x = 'é' == 'ü' and 'ö' != 1\n", encoding="utf-8")
    source = (tmp_path / "module.py").read_bytes()
    changed = {each.source(source).decode() for each in mutate.mutants(tmp_path, "module.py")}
    assert "x = 'é' != 'ü' and 'ö' != 1\n" in changed
    assert "x = 'é' == 'ü' or 'ö' != 1\n" in changed
    assert "x = 'é' == 'ü' and 'ö' != 2\n" in changed


def outcome(*results):
    return {"date": "2026-01-31", "seed": 5, "possible": 90, "results": list(results)}


DEAD = {"path": "a.py", "line": 1, "change": "1 -> 2", "text": "x = 1", "fate": "killed", "reason": ""}
ALIVE = {**DEAD, "line": 2, "text": "y = 1 | 2", "fate": "survived"}


def test_the_page_counts_and_names_survivors():
    text = page(outcome(DEAD, DEAD, DEAD, ALIVE))
    assert "3 of 4 faults were killed (75.0%)" in text
    assert "4 faults, drawn at random with seed 5 from the 90" in text
    assert "2026-01-31" in text
    assert "| `a.py` | 3 | 1 |" in text
    assert "| `a.py:2` | 1 -> 2 | `y = 1 \\| 2` | not looked into |" in text


def test_the_page_says_how_many_were_killed_before_tests_were_written():
    later = {**DEAD, "first": "survived"}
    text = page(outcome({**DEAD, "first": "killed"}, later, DEAD, later))
    assert "4 of 4 faults were killed (100.0%)" in text
    assert "survived, 2 were (50.0%)" in text
    assert "Before" not in page(outcome(DEAD, ALIVE))


def test_an_outcome_is_the_last_one_and_remembers_the_first(tmp_path):
    at = {"start": 0, "stop": 1, "new": "2", "by": ""}
    lines = [{**ALIVE, **at}, {**DEAD, **at}, {**ALIVE, **at, "fate": "killed", "by": "t::a"}]
    (tmp_path / "outcomes.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in lines), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("mutants_main", Path(__file__).parent / "__main__.py")
    main = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(main)
    assert main.stored(tmp_path / "none.jsonl") == {}
    (found,) = main.stored(tmp_path / "outcomes.jsonl").values()
    assert (found["fate"], found["by"], found["first"]) == ("killed", "t::a", "survived")


def test_the_record_has_a_result_on_each_line():
    text = record(outcome(DEAD, ALIVE))
    assert json.loads(text) == outcome(DEAD, ALIVE)
    assert sum('"path"' in line for line in text.splitlines()) == 2


# ---------------------------------------------------------------------- judging
@pytest.fixture
def judged(tmp_path, monkeypatch):
    """Return a judge of a file whose one fault is detected by the tests that a test names, in that order."""

    def judged(*tests, fails_with=(), fails_without=()):
        (tmp_path / "module.py").write_text("x = 1\n", encoding="utf-8")
        mutant = mutate.mutants(tmp_path, "module.py")[0]

        def run(tree, suite, names, limit):
            made = (tree / "module.py").read_text() == "x = 2\n"
            failed = [each for each in names if each in (*(fails_with if made else ()), *fails_without)]
            return (1, f"F\nFAILED {failed[0]} - AssertionError: x\n1 failed") if failed else (0, "")

        monkeypatch.setattr(judge, "pytest", run)
        selection = judge.Selection({"neutral": {("module.py", 1): tests}})
        killer = judge.Judge(tmp_path, selection).killer(mutant)
        assert (tmp_path / "module.py").read_text() == "x = 1\n"
        return killer

    return judged


def test_a_test_that_fails_kills(judged):
    assert judged("t::a", "t::b", fails_with=["t::b"]) == "t::b"
    assert judged("t::a", "t::b") == ""


def test_a_failing_test_is_named_whatever_its_parameters(judged):
    assert judged("t::a", "t::a[x - y]", fails_with=["t::a[x - y]"]) == "t::a[x - y]"


def test_a_test_that_fails_without_the_fault_too_kills_nothing(judged):
    assert judged("t::a", "t::b", fails_without=["t::a"]) == ""
    assert judged("t::a", "t::b", fails_without=["t::a"], fails_with=["t::b"]) == "t::b"


def test_a_line_that_only_the_import_runs_is_judged_by_the_tests_of_its_file():
    lines = {"neutral": {("a.py", 2): ["t::a", "t::b"], ("b.py", 1): ["t::c"]}, "kit": {}}
    fault = mutate.Mutant("a.py", 1, "1 -> 2", "x = 1", 4, 5, "2")
    assert list(judge.Selection(lines).judges(fault)) == [("neutral", ["t::a", "t::b"])]
    named = judge.Selection(lines, named={"a.py": ["test_a::a", "t::b"], "b.py": ["test_b::a"]})
    assert list(named.judges(fault)) == [("neutral", ["t::a", "t::b", "test_a::a"])]


@pytest.mark.parametrize("count", [0, 1, 80, 81, 119, 120, 5000])
def test_a_line_that_all_tests_run_is_judged_by_some_of_them(count):
    tests = [f"t::{i}" for i in range(count)]
    chosen = judge._some(tests)
    assert chosen == tests if count <= 80 else 40 < len(chosen) <= 80
    assert chosen[:40] == tests[:40]
    assert len(set(chosen)) == len(chosen)


def test_tests_are_named_after_files():
    tests = ["tests/unit/test_a.py::x", "tests/unit/test_a_b.py::x", "tests/unit/test_b.py::x"]
    assert judge._named_after("devshim/trees/a.py", tests) == tests[:1]


def test_a_line_is_judged_by_the_tests_that_run_it_in_each_suite():
    lines = {"neutral": {("a.py", 2): ["t::a"], ("a.py", 3): ["t::b"]}, "kit": {("a.py", 2): ["k::c"]}}
    fault = mutate.Mutant("a.py", 2, "1 -> 2", "x = 1", 4, 5, "2")
    assert list(judge.Selection(lines).judges(fault)) == [("neutral", ["t::a"]), ("kit", ["k::c"])]
    chosen = judge.Selection({}, {"neutral": ["t::d"], "kit": []})
    assert list(chosen.judges(fault)) == [("neutral", ["t::d"])]
