"""Tests of the list of ``gpu``-marked tests that need kernels: each exists, and launches kernels."""

from __future__ import annotations

from types import SimpleNamespace

import needs_kernels
import pytest

TESTS = ["t.py::one[x]", "t.py::one[y]", "t.py::two[a]", "t.py::two[b]", "t.py::three", "t.py::four"]


@pytest.fixture
def listed(tmp_path, monkeypatch):
    """Return the plugin's state with a list, in a run of some tests."""
    file = tmp_path / "needs_kernels.txt"
    file.write_text("# words\nt.py::one\nt.py::two[a]\n")
    monkeypatch.setattr(needs_kernels, "LIST", file)

    def make(write=False, tests=TESTS):
        found = needs_kernels.KernelList(write)
        config = SimpleNamespace(option=SimpleNamespace(keyword=""))
        found.pytest_collection_modifyitems(config, [SimpleNamespace(nodeid=test) for test in tests])
        return found, file

    return make


def judge(listed, test, outcome, launched):
    report = SimpleNamespace(nodeid=test, outcome=outcome, passed=outcome == "passed", failed=outcome == "failed")
    listed.launched = launched
    listed.judge(report)
    return report.outcome if report.outcome != outcome else "unchanged"


@pytest.mark.parametrize(
    ("test", "outcome", "launched", "then"),
    [
        ("t.py::one[x]", "failed", 3, "skipped"),  # with `wasxfail`: expected to fail
        ("t.py::one[x]", "passed", 3, "unchanged"),
        ("t.py::one[x]", "failed", 0, "unchanged"),
        ("t.py::one[x]", "passed", 0, "failed"),
        ("t.py::two[a]", "failed", 1, "skipped"),
        ("t.py::two[b]", "failed", 1, "unchanged"),
        ("t.py::two[b]", "passed", 0, "unchanged"),
    ],
)
def test_a_listed_test_may_fail_if_it_launched_a_kernel(listed, test, outcome, launched, then):
    assert judge(listed()[0], test, outcome, launched) == then


def test_a_listed_test_must_exist(listed):
    with pytest.raises(pytest.UsageError, match=r"that do not exist: t\.py::one"):
        listed(tests=["t.py::two[a]"])


def test_the_list_is_written(listed):
    found, file = listed(write=True)
    for test, outcome, launched in (("two[b]", "failed", 1), ("three", "failed", 0), ("four", "passed", 1)):
        judge(found, f"t.py::{test}", outcome, launched)
    found.pytest_sessionfinish()
    assert file.read_text().splitlines()[1:] == ["t.py::one", "t.py::two"]
