"""The record of test suites and programs for real GPUs on simulated ones: docs/native-suites.json, and its page.

The record is a list of rows, one for each suite::

    {
        "framework": "torch",                   # a session name of `nox -s native`
        "suite": "PyTorch: operators (OpInfo)",   # a title, unique within the framework
        "versions": {"torch": "2.13.0"},        # what was tested
        "passed": 700,
        "failed": 2,
        "not_simulated": 1,                     # devshim refuses: `ds.UnsupportedError`, or a skip of `native_plugin`
        "skipped": 5,                           # a real GPU would skip these, too; they do not count
        "causes": [                             # of "failed" and "not simulated", most tests first
            {"outcome": "failed", "cause": "RuntimeError: ...", "count": 2, "tests": ["test_a", "test_b"]}
        ],
    }

The outcomes of a run are dictionaries, which `row` counts::

    {"test": "test_file.py::Test::test_a", "outcome": "passed" | "failed" | "not simulated" | "skipped", "cause": ""}

`native_plugin` writes them for every test of pytest, one in a line; `python tests/native_suites FRAMEWORK` runs the
files ``tests/native_suites/suites/FRAMEWORK/test_*.py``, each of which has its title in ``SUITE`` and the distributions
that it tests in ``TESTED``. A program other than a pytest file can call `row` and `merge` itself.

``python tests/native_suites/native_record.py --write docs/native-suites.json docs/native-suites.md`` writes the tables
between the marks of the page; with ``--check`` the exit code is 1 if they differ.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

import suite_files

TITLES = {
    "torch": "PyTorch",
    "jax": "JAX",
    "tensorflow": "TensorFlow",
    "paddle": "PaddlePaddle",
    "mxnet1": "MXNet 1.9",
    "mxnet2": "MXNet 2.0",
}
COUNTED = ("passed", "failed", "not simulated")
"""The outcomes of tests that a real GPU would run."""
LONGEST = 160
"""The most characters of a cause."""
MOST = 12
"""The most tests that the record names for a cause."""


# ---------------------------------------------------------------------- one suite
def row(framework: str, suite: str, versions: dict[str, str], outcomes: Iterable[dict[str, str]]) -> dict[str, Any]:
    """Return what the record stores about one suite."""
    found = list(by_test(outcomes).values())
    counts = {name: sum(each["outcome"] == name for each in found) for name in (*COUNTED, "skipped")}
    return {
        "framework": framework,
        "suite": suite,
        "versions": versions,
        **{name.replace(" ", "_"): count for name, count in counts.items()},
        "causes": causes(each for each in found if each["outcome"] in COUNTED[1:]),
    }


def by_test(outcomes: Iterable[dict[str, str]]) -> dict[str, dict[str, str]]:
    """Return one outcome for each test: the first one other than passed, if a phase had another."""
    found: dict[str, dict[str, str]] = {}
    for each in outcomes:
        if found.get(each["test"], {}).get("outcome", "passed") == "passed":
            found[each["test"]] = each
    return found


def causes(outcomes: Iterable[dict[str, str]]) -> list[dict[str, Any]]:
    """Return the causes with their tests, those of most tests first."""
    grouped: dict[tuple[str, str], list[str]] = defaultdict(list)
    for each in outcomes:
        grouped[each["outcome"], general(each["cause"])].append(each["test"].split("::")[-1])
    rows = [
        {"outcome": outcome, "cause": cause, "count": len(tests), "tests": sorted(tests)[:MOST]}
        for (outcome, cause), tests in grouped.items()
    ]
    return sorted(rows, key=lambda each: (each["outcome"], -each["count"], each["cause"]))


def general(cause: str) -> str:
    """Return the first line of a cause, and the next one after a colon, without what differs between two runs."""
    lines = [each.strip() for each in cause.splitlines() if each.strip()]
    line = " ".join(lines[: 2 if lines and lines[0].endswith(":") else 1])
    return re.sub(r"0x[0-9a-f]+", "0x...", line)[:LONGEST]


def merge(path: Path, made: dict[str, Any]) -> None:
    """Add a row to the record, and remove an earlier one of the same suite."""
    order = list(TITLES)
    suite_files.merge(
        path,
        made,
        key=lambda each: (each["framework"], each["suite"]),
        order=lambda each: (order.index(each["framework"]), each["suite"]),
    )


# ---------------------------------------------------------------------- the page
def tables(record: Sequence[dict[str, Any]]) -> str:
    """Return the tables of the page."""
    lines = [
        "| framework | suite | tested | passed | failed | not simulated | passed of all |",
        "|---|---|---|---|---|---|---|",
    ]
    for each in record:
        tested = ", ".join(f"{name} {version}" for name, version in each["versions"].items())
        counts = [each[name.replace(" ", "_")] for name in COUNTED]
        cells = [TITLES[each["framework"]], each["suite"], tested, *counts, share(counts)]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    if not any(each["causes"] for each in record):
        return "\n".join(lines)
    lines += ["", "Every cause of a test that failed or was not simulated:", ""]
    lines += ["| framework | suite | outcome | tests | cause |", "|---|---|---|---|---|"]
    for each in record:
        for cause in each["causes"]:
            text = cause["cause"].replace("|", "\\|").replace("`", "'")
            cells = [TITLES[each["framework"]], each["suite"], cause["outcome"], cause["count"], f"`{text}`"]
            lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def share(counts: Sequence[int]) -> str:
    """Return the part of the tests that passed; never 100% unless all did."""
    passed, total = counts[0], sum(counts)
    return f"{1000 * passed // total / 10:g}%" if total else "-"


def page(text: str, record: Sequence[dict[str, Any]]) -> str:
    """Return the page with new tables between the marks."""
    return suite_files.with_tables(text, tables(record))


if __name__ == "__main__":
    sys.exit(suite_files.write_or_check(sys.argv[1:], page))
