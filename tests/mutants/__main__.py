"""Mutation testing of the neutral half: ``python tests/mutants --sample 300``.

A mutant is a copy of the package with one small fault in a comparison, boolean operator, constant or returned value.
The tests of ``tests/neutral`` and the conformance kit on NumPy's two simulated GPUs that run its line judge it: one
that fails kills the mutant.  A mutant that survives shows what no test would notice.

Which mutants are made is drawn with a seed, so that a run can be repeated.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from known import SURVIVORS
from mutate import Mutant, mutants
from report import page
from select_tests import SUITES, by_line, pytest

ROOT = Path(__file__).parents[2]
COPIED = ("devshim", "backends", "tests", "docs", "examples", "benchmarks")
FILES = ("pyproject.toml", "conftest.py", "README.md", "noxfile.py", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE")
LEFT_OUT = ("devshim/testing/", "devshim/cli/", "devshim/isolation/", "devshim/pytest_plugin.py")
"""Parts of the package that are tests themselves, or are tested elsewhere."""
LIMIT = 240.0
"""Seconds for one suite on one mutant; one that takes longer never ends, and counts as killed."""


def main() -> int:
    """Draw mutants, judge them, print and write what survived; return the exit status."""
    parser = argparse.ArgumentParser(prog="python tests/mutants", description=__doc__.partition("\n")[0])
    parser.add_argument("only", nargs="*", metavar="FILE", help="such as devshim/ledger.py; without any, all")
    parser.add_argument("--sample", type=int, default=300, help="how many mutants to draw; 0 for all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--line", type=int, help="only the mutants of one line of the one file")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--write", nargs=2, type=Path, metavar=("JSON", "PAGE"), help="where to record the outcome")
    asked = parser.parse_args()
    drawn = draw(asked.only, asked.sample, asked.seed, asked.line)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        results = judge(drawn, Path(folder), asked.processes)
    outcome = {
        "seed": asked.seed,
        "mutants": len(results),
        "results": sorted(results, key=lambda r: (r["path"], r["line"])),
    }
    unexpected = [each for each in results if each["fate"] == "survived" and not each["reason"]]
    killed = sum(each["fate"] == "killed" for each in results)
    print(f"{killed} of {len(results)} killed, {time.perf_counter() - began:.0f} seconds")
    for each in unexpected:
        print(f"survived: {each['path']}:{each['line']}: {each['change']}: {each['text']}")
    if asked.write:
        record, text = asked.write
        record.write_text(json.dumps(outcome, indent=1) + "\n", encoding="utf-8")
        text.write_text(page(outcome), encoding="utf-8")
    return 1 if unexpected else 0


def draw(only: list[str], count: int, seed: int, line: int | None) -> list[Mutant]:
    """Return mutants of the neutral half, drawn at random."""
    paths = only or [str(path.relative_to(ROOT)) for path in sorted((ROOT / "devshim").rglob("*.py"))]
    found = [each for path in paths if not path.startswith(LEFT_OUT) for each in mutants(ROOT, path)]
    found = [each for each in found if line is None or each.line == line]
    return found if not count or count >= len(found) else random.Random(seed).sample(found, count)


def judge(drawn: list[Mutant], folder: Path, processes: int) -> list[dict[str, Any]]:
    """Run the tests on every mutant, several at a time."""
    trees = [copied(folder / str(number)) for number in range(processes)]
    lines = {suite: by_line(trees[0], suite, folder / f"{suite}.coverage") for suite in SUITES}
    waiting: SimpleQueue[Mutant] = SimpleQueue()
    for each in drawn:
        waiting.put(each)

    def work(tree: Path) -> list[dict[str, Any]]:
        results = []
        while True:
            try:
                mutant = waiting.get_nowait()
            except Empty:
                return results
            results.append(fate_of(mutant, tree, lines))

    with ThreadPoolExecutor(processes) as pool:
        return [result for part in pool.map(work, trees) for result in part]


def copied(tree: Path) -> Path:
    """Return a copy of the checkout."""
    for name in COPIED:
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__", "_build", "mutants"))
    for name in FILES:
        shutil.copy(ROOT / name, tree / name)
    return tree


def fate_of(mutant: Mutant, tree: Path, lines: dict[str, dict[tuple[str, int], list[str]]]) -> dict[str, Any]:
    """Make a mutant in a copy of the checkout, judge it, and take it back."""
    file = tree / mutant.path
    original = file.read_bytes()
    file.write_bytes(mutant.source(original))
    try:
        killed = any(pytest(tree, suite, tests, limit=LIMIT)[0] for suite, tests in judges(mutant, lines))
    finally:
        file.write_bytes(original)
    fate = "killed" if killed else "survived"
    reason = SURVIVORS.get((mutant.path, mutant.text, mutant.change), "")
    found = {"path": mutant.path, "line": mutant.line, "change": mutant.change, "text": mutant.text}
    print(f"{fate}: {mutant.path}:{mutant.line}: {mutant.change}", flush=True)
    return {**found, "fate": fate, "reason": reason}


def judges(mutant: Mutant, lines: dict[str, dict[tuple[str, int], list[str]]]) -> Iterable[tuple[str, list[str]]]:
    """Yield the tests that run a mutant's line; of one that only an import runs, those that run lines of its file."""
    found = {suite: by_line.get((mutant.path, mutant.line), []) for suite, by_line in lines.items()}
    if not any(found.values()):
        for suite, by_line in lines.items():
            near = {test: None for (path, _), tests in by_line.items() if path == mutant.path for test in tests}
            found[suite] = list(near)
    return [(suite, tests) for suite, tests in found.items() if tests]


if __name__ == "__main__":
    sys.exit(main())
