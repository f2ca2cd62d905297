"""The selection of tests for each line: only tests that run a mutant's line judge it."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

SUITES: dict[str, tuple[list[str], list[str]]] = {
    "neutral": ([], ["tests/unit"]),
    "kit": (["-p", "devshim.testing.plugin", "--devshim-gpus=2"], ["tests/backends/numpy/test_conformance.py"]),
}
"""Suite -> options of pytest, and its tests."""
UNRELATED = (
    *("test_architecture.py", "test_layers.py", "test_import_cost.py", "test_benchmarks.py"),
    "registry/test_import_hooks.py",
)
"""Files whose tests read the source, time it, or import it in separate processes."""


EACH = 120
"""Seconds for one test: a test that takes longer never ends."""


def environment(tree: Path, compiled: bool) -> dict[str, str]:
    """Return the environment in which a copy of the checkout is imported.

    Bytecode is written only while no mutant is there, so that later runs never find a mutant's bytecode.
    """
    paths = os.pathsep.join(map(str, (tree, tree / "backends", tree / "tests/helpers")))
    own = {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "" if compiled else "1", "OMP_NUM_THREADS": "1"}
    return {**os.environ, **own}


def pytest(
    tree: Path,
    suite: str,
    tests: Sequence[str] = (),
    more: Sequence[str] = (),
    limit: float | None = None,
    compiled: bool = False,
) -> tuple[int, str]:
    """Run tests in a copy of the checkout.

    Args:
        tree: The copy.
        suite: Their suite.
        tests: Their identifiers; if empty, all of the suite.
        more: Additional options.
        limit: Seconds.
        compiled: True to write bytecode.

    Returns:
        Pytest's exit status, 124 if it takes longer than the limit, and its output.
    """
    options, every = SUITES[suite]
    fixed = ["-q", "-x", "-p", "no:cacheprovider", f"--timeout={EACH}"]
    command = [sys.executable, "-m", "pytest", *fixed, *options, *more, *(tests or every)]
    run = {"cwd": tree, "env": environment(tree, compiled), "capture_output": True, "text": True, "timeout": limit}
    try:
        done = subprocess.run(command, **run)
    except subprocess.TimeoutExpired:
        return 124, ""
    return done.returncode, done.stdout


def collected(tree: Path, suite: str) -> set[str]:
    """Return the identifiers of a suite's tests, and leave the bytecode of all their imports."""
    status, printed = pytest(tree, suite, more=["--collect-only"], compiled=True)
    if status:
        raise SystemExit(f"the suite {suite} is not collected without a mutant:\n{printed[-3000:]}")
    return {line for line in printed.splitlines() if "::" in line}


def by_line(tree: Path, suite: str, data: Path) -> dict[tuple[str, int], list[str]]:
    """Return the tests that run each line of the package, fast ones first, then those that run few lines.

    One run of the suite measures this. Its data stays in ``data`` and beside it; if that exists, the suite does not run
    again.
    """
    times = data.with_suffix(".durations")
    if not data.exists():
        ignored = [f"--ignore=tests/unit/{name}" for name in UNRELATED] if suite == "neutral" else []
        measured = ["--cov=devshim", "--cov-context=test", "--cov-report=", "--no-cov-on-fail", "--durations=0"]
        status, printed = pytest(tree, suite, more=[*ignored, *measured])
        if status:
            raise SystemExit(f"the suite {suite} fails without a mutant:\n{printed[-3000:]}")
        times.write_text(printed, encoding="utf-8")
        (tree / ".coverage").rename(data)
    seconds: dict[str, float] = {}
    for took, test in re.findall(r"^([\d.]+)s \w+ +(.+)$", times.read_text(encoding="utf-8"), re.MULTILINE):
        seconds[test] = seconds.get(test, 0) + float(took)
    return _read(tree, data, seconds)


def _read(tree: Path, data: Path, seconds: Mapping[str, float]) -> dict[tuple[str, int], list[str]]:
    from coverage.numbits import numbits_to_nums

    found: dict[tuple[str, int], list[str]] = {}
    lines_of: dict[str, int] = {}
    query = (
        "select file.path, context.context, line_bits.numbits from line_bits "
        "join file on file.id = line_bits.file_id join context on context.id = line_bits.context_id"
    )
    with sqlite3.connect(data) as connection:
        for path, context, bits in connection.execute(query):
            test = context.rpartition("|")[0]
            if not test:
                continue
            numbers = numbits_to_nums(bits)
            lines_of[test] = lines_of.get(test, 0) + len(numbers)
            name = str(Path(path).relative_to(tree))
            for number in numbers:
                found.setdefault((name, number), []).append(test)
    order = sorted(lines_of, key=lambda test: (round(seconds.get(test, 0), 1), lines_of[test], test))
    rank = {test: i for i, test in enumerate(order)}
    return {line: sorted(set(tests), key=rank.__getitem__) for line, tests in found.items()}
