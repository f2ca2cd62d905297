"""The record of the runs, docs/ports.json, and the tables that docs/ports.md makes of it.

``python tests/ports/suites/suite_record.py --write docs/ports.json docs/ports.md`` writes the tables between the marks
of the page; with ``--check`` the exit code is 1 if they differ.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "helpers"))

import suite_files

TITLES = {"numpy": "NumPy", "torch": "PyTorch", "jax": "JAX", "tensorflow": "TensorFlow", "paddle": "PaddlePaddle"}
PROJECTS = {"pot": "POT", "tensorly": "TensorLy"}
ON_GPU = ("gpu", "ported", "default", "native")
MOST = 6
"""The most functions that the page names for one run; the record has all."""


# ---------------------------------------------------------------------- one run
def summary(
    project: str, framework: str, versions: dict[str, str], outcomes: dict[str, list[dict[str, Any]]]
) -> dict[str, Any]:
    """Return what the record stores about one project on one framework.

    The tests that count are those that pass without devshim. ``broken`` lists those of them that fail if simulated
    GPUs only exist. For ``gpu:1``, a cause is a line of the project or of its tests, and an error.
    """
    results = {mode: by_test(entries) for mode, entries in outcomes.items()}
    right = tests_that_pass(outcomes["without"])
    both = {mode: right & set(found) for mode, found in results.items()}
    failed = {mode: {test for test in both[mode] if is_failed(results[mode][test])} for mode in results}
    return {
        "project": project,
        "framework": framework,
        "versions": versions,
        "passed": len(right),
        "failed": names(test for test, entry in results["without"].items() if is_failed(entry) and not is_slow(entry)),
        "slow": names(test for test, entry in results["without"].items() if is_slow(entry)),
        "skipped": sum(entry["outcome"] == "skipped" for entry in results["without"].values()),
        "simulated": len(both["simulated"]),
        "broken": sorted(failed["simulated"]),
        **{
            mode: {
                "tests": len(both[mode]),
                "passed": len(both[mode] - failed[mode]),
                "causes": causes(results[mode][test] for test in failed[mode]),
            }
            for mode in ON_GPU
            if results.get(mode)
        },
    }


def tests_that_pass(entries: Iterable[dict[str, Any]]) -> set[str]:
    """Return the names of the tests that pass."""
    return {test for test, entry in by_test(entries).items() if passed(entry)}


def by_test(entries: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return one entry for each test: a failure, if any of its phases failed."""
    found: dict[str, dict[str, Any]] = {}
    for entry in entries:
        if "test" in entry and found.get(entry["test"], {}).get("outcome") != "failed":
            found[entry["test"]] = entry
    return found


def passed(entry: dict[str, Any]) -> bool:
    """Return True if a test passed."""
    return bool(entry["outcome"] == "passed")


def is_failed(entry: dict[str, Any]) -> bool:
    """Return True if a test failed."""
    return bool(entry["outcome"] == "failed")


def is_slow(entry: dict[str, Any]) -> bool:
    """Return True if a test exceeded its time limit."""
    return is_failed(entry) and entry["text"].startswith("Timeout")


def names(tests: Iterable[str]) -> list[str]:
    """Return the tests' names without parameters, each once."""
    return sorted({test.split("[")[0] for test in tests})


def causes(entries: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the causes of failures, those of most tests first."""
    grouped: dict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)
    for entry in entries:
        site = entry["site"] if entry["in"] == "project" else entry["site"].split(":")[0]
        grouped[entry["in"], site, entry["error"]].append(entry)
    rows = [
        {
            "in": where,
            "site": site,
            "error": error,
            "text": min(entry["text"] for entry in some),
            "count": len(some),
            "tests": names(entry["test"] for entry in some),
        }
        for (where, site, error), some in grouped.items()
    ]
    return sorted(rows, key=lambda row: (row["in"], -row["count"], row["site"], row["error"]))


def merge(path: Path, run: dict[str, Any]) -> None:
    """Add a run to the record, and remove an earlier one of the same project and framework."""
    order = list(TITLES)
    suite_files.merge(
        path,
        run,
        key=lambda each: (each["project"], each["framework"]),
        order=lambda each: (each["project"], order.index(each["framework"])),
    )


# ---------------------------------------------------------------------- the page
def tables(record: list[dict[str, Any]]) -> str:
    """Return the tables of the page."""
    rows = [
        "| suite | framework | without devshim | with simulated GPUs, on the CPU | with `gpu:1` as the default device "
        "| by `devshim run` | on `gpu:1` | on `gpu:1`, with devshim's device code |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for run in record:
        title = f"{PROJECTS[run['project']]} {run['versions'][run['project']]}"
        other = f"{TITLES[run['framework']]} {run['versions'][run['framework']]}"
        own = f"{run['passed']} pass, {len(run['failed'])} fail" + (f", {len(run['slow'])} slow" if run["slow"] else "")
        simulated = f"{run['simulated'] - len(run['broken'])} of {run['simulated']}"
        shares = [share(run.get(mode)) for mode in ("default", "native", "gpu", "ported")]
        rows.append(f"| {' | '.join([title, other, own, simulated, *shares])} |")
    return "\n".join(
        [*rows, "", "Where tests fail on `gpu:1`, with the projects' own device code:", "", *sites(record)]
    )


def share(mode: dict[str, Any] | None) -> str:
    """Return how many tests pass, and of how many; a dash if they have not run in a mode."""
    return "-" if mode is None else f"{mode['passed']} of {mode['tests']}"


def sites(record: list[dict[str, Any]]) -> list[str]:
    """Return the table of the functions of the projects that fail on ``gpu:1``, with the numbers of tests."""
    rows = [
        "| suite | framework | tests that fail | in a line of the test | in a function of the project |",
        "|---|---|---|---|---|",
    ]
    for run in record:
        found = run["gpu"]["causes"]
        own = sum(each["count"] for each in found if each["in"] == "test")
        counts: dict[str, int] = defaultdict(int)
        for each in found:
            if each["in"] == "project":
                counts[function_of(each["site"])] += each["count"]
        ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        shown = ", ".join(f"`{name}` {count}" for name, count in ordered[:MOST])
        if len(ordered) > MOST:
            rest = sum(count for _, count in ordered[MOST:])
            shown += f", and {len(ordered) - MOST} other functions {rest}"
        cells = [PROJECTS[run["project"]], TITLES[run["framework"]], own + sum(counts.values()), own, shown or "-"]
        rows.append(f"| {' | '.join(map(str, cells))} |")
    return rows


def function_of(site: str) -> str:
    """Return the file and function of a line: ``ot/utils.py:10 unif`` is ``utils.unif``."""
    path, function = site.split(" ", 1)
    module = path.split(":")[0].removesuffix(".py").split("/")
    return f"{'.'.join(module[1:])}.{function}"


def page(text: str, record: list[dict[str, Any]]) -> str:
    """Return the page with new tables between the marks."""
    return suite_files.with_tables(text, tables(record))


if __name__ == "__main__":
    sys.exit(suite_files.write_or_check(sys.argv[1:], page))
