"""The program for mutation testing of the neutral half: ``python tests/mutants --sample 300``.

A mutant is a copy of the package with one small fault in a comparison, boolean operator, constant or returned value.
The tests of ``tests/unit`` and the conformance kit on NumPy's two simulated GPUs that run its line judge it: a test
that fails, and passes without the fault, kills the mutant. A mutant that survives shows a fault that no test would
detect.

A seed selects the mutants, so that a run can be repeated. ``--keep FOLDER`` stores each outcome as it is found, and the
same command continues after an interruption. After tests have been written for the survivors, the same command with
``--again --by FILE`` judges the survivors again, with these tests.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from judge import Judge, Selection, select
from known import SURVIVORS
from mutate import Mutant, mutants
from report import page, record

ROOT = Path(__file__).parents[2]
COPIED = ("devshim", "backends", "tests", "docs", "examples", "benchmarks")
FILES = ("pyproject.toml", "conftest.py", "README.md", "noxfile.py", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE")
OUTCOMES = "outcomes.jsonl"
LEFT_OUT = (
    *(
        "devshim/testing/",
        "devshim/cli/",
        "devshim/certify/",
        "devshim/jupyter/",
        "devshim/tutorial/",
        "devshim/world/",
    ),
    *("devshim/pytest_plugin.py", "devshim/sphinx.py"),
)
"""Parts of the package that are tests themselves, or are mostly tested outside `tests/unit`."""


def main() -> int:
    """Draw mutants, judge them, print and write the survivors; return the exit status."""
    asked = arguments()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="mutants-") as temporary:
        folder = (asked.keep or Path(temporary)).resolve()
        trees = [copied(folder / str(number), asked.again) for number in range(asked.processes)]
        every = population(trees[0], asked.only, asked.line)
        if asked.again:
            known = stored(folder / OUTCOMES)
            drawn = [each for each in every if _key(vars(each)) in known]
        else:
            drawn = random.Random(asked.seed).sample(every, min(asked.sample or len(every), len(every)))
        results = outcomes(drawn, trees, folder, asked.by, asked.again)
    killed = sum(each["fate"] == "killed" for each in results)
    print(f"{killed} of {len(results)} killed, {time.perf_counter() - began:.0f} seconds")
    unexpected = [each for each in results if each["fate"] == "survived" and not each["reason"]]
    for each in unexpected:
        print(f"survived: {each['path']}:{each['line']}: {each['change']}: {each['text']}")
    if asked.write:
        date = datetime.now(timezone.utc).date().isoformat()
        ordered = sorted(results, key=lambda each: (each["path"], each["line"], each["start"]))
        outcome = {"date": date, "seed": asked.seed, "possible": len(every), "results": ordered}
        asked.write[0].write_text(record(outcome), encoding="utf-8")
        asked.write[1].write_text(page(outcome), encoding="utf-8")
    return 1 if unexpected else 0


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python tests/mutants", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "only", nargs="*", metavar="FILE", help="such as devshim/monitoring/ledger.py; without any, all"
    )
    parser.add_argument("--sample", type=int, default=300, help="how many mutants to draw; 0 for all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--line", type=int, help="only the mutants of one line of the one file")
    parser.add_argument("--by", action="append", metavar="TEST", help="judge by this test or file, and not by coverage")
    parser.add_argument("--again", action="store_true", help="judge what survived in the kept folder once more")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where outcomes stay, so that a run can go on")
    parser.add_argument("--write", nargs=2, type=Path, metavar=("JSON", "PAGE"), help="where to record the outcome")
    return parser.parse_args()


def population(root: Path, only: Sequence[str], line: int | None) -> list[Mutant]:
    """Return every mutant of the neutral half, or of some files or one line of it."""
    paths = only or [str(path.relative_to(root)) for path in sorted((root / "devshim").rglob("*.py"))]
    found = [each for path in paths if not path.startswith(LEFT_OUT) for each in mutants(root, path)]
    return [each for each in found if line is None or each.line == line]


def copied(tree: Path, again: bool) -> Path:
    """Return a copy of the checkout: the one that an earlier run left, with its faults removed.

    Args:
        tree: The path of the copy.
        again: True to use today's tests.
    """
    original = tree / "original"
    if not original.exists():
        for name in COPIED:
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__", "_build", "mutants"))
        for name in FILES:
            shutil.copy2(ROOT / name, tree / name)
        shutil.copytree(tree / "devshim", original)
    shutil.copytree(original, tree / "devshim", dirs_exist_ok=True)
    if again:
        shutil.copytree(ROOT / "tests", tree / "tests", ignore=shutil.ignore_patterns("mutants"), dirs_exist_ok=True)
    return tree


def outcomes(
    drawn: Sequence[Mutant], trees: Sequence[Path], folder: Path, by: Sequence[str] | None, again: bool
) -> list[dict[str, Any]]:
    """Return the outcome of every mutant, and its first one; stored mutants are judged ``again``, or skipped."""
    store = folder / OUTCOMES
    found = stored(store)
    left = [each for each in drawn if _key(vars(each)) not in found]
    if again:
        left = [each for each in drawn if found[_key(vars(each))]["fate"] == "survived"]
    if left:
        judge_all(left, trees, select(trees, folder, by), store)
        found = stored(store)
    results = [found[_key(vars(each))] for each in drawn]
    return [{**each, "reason": SURVIVORS.get((each["path"], each["text"], each["change"]), "")} for each in results]


def stored(store: Path) -> dict[tuple[str, int, int, str], dict[str, Any]]:
    """Return the outcomes stored in a folder, the last of each mutant, with the first one."""
    found: dict[tuple[str, int, int, str], dict[str, Any]] = {}
    for line in store.read_text(encoding="utf-8").splitlines() if store.exists() else ():
        each = json.loads(line)
        first = found.get(_key(each), {}).get("first", each["fate"])
        found[_key(each)] = {**each, "first": first}
    return found


def _key(mutant: dict[str, Any]) -> tuple[str, int, int, str]:
    return mutant["path"], mutant["start"], mutant["stop"], mutant["new"]


def judge_all(drawn: Iterable[Mutant], trees: Sequence[Path], selection: Selection, store: Path) -> None:
    """Judge mutants, one at a time in each copy of the checkout, and record each outcome."""
    waiting: SimpleQueue[Mutant] = SimpleQueue()
    for each in drawn:
        waiting.put(each)

    def work(tree: Path) -> None:
        judge = Judge(tree, selection)
        while True:
            try:
                mutant = waiting.get_nowait()
            except Empty:
                return
            by = judge.killer(mutant)
            fate = "killed" if by else "survived"
            print(f"{fate}: {mutant.path}:{mutant.line}: {mutant.change} {by}", flush=True)
            with store.open("a", encoding="utf-8") as file:
                file.write(json.dumps({**vars(mutant), "fate": fate, "by": by}) + "\n")

    with ThreadPoolExecutor(len(trees)) as pool:
        list(pool.map(work, trees))


if __name__ == "__main__":
    sys.exit(main())
