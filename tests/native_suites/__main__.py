"""Run a framework's suites for real GPUs on simulated ones: ``python tests/native_suites torch --write JSON``.

Each file ``suites/FRAMEWORK/test_*.py`` is a suite, with a title in ``SUITE`` and the distributions that it tests in
``TESTED``. It runs by ``devshim run --gpus 2 -m pytest``, so that its tests, and the packages that they
test, use only the framework's own names for GPUs. If a test ends the process, another process goes on with the next
one.
"""

from __future__ import annotations

import argparse
import ast
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from native_record import merge, row
from suite_files import read, run_all

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SUITES = HERE / "suites"
SECONDS = 120
"""The time limit of a test."""


def main() -> int:
    """Run the suites, write the record, and print a summary; return 1 if a test failed."""
    asked = arguments()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="native-suites-") as temporary:
        folder = (asked.keep or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        for file in sorted((SUITES / asked.framework).glob("test_*.py")):
            if asked.only and asked.only not in file.name:
                continue
            made = suite(file, asked, folder)
            failed += made["failed"]
            print(made["suite"], *(f"{name} {made[name]}" for name in ("passed", "failed", "not_simulated", "skipped")))
            for each in made["causes"]:
                print(f"  {each['outcome']}, {each['count']} tests: {each['cause']}  ({each['tests'][0]})")
            if asked.write:
                merge(asked.write, made)
    return int(failed > 0)


def arguments() -> argparse.Namespace:
    """Return the arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("framework", choices=sorted(each.name for each in SUITES.iterdir()))
    parser.add_argument("--only", default="", help="a part of the names of the files to run")
    parser.add_argument("--tests", default="", help="the option -k of pytest: the tests to run")
    parser.add_argument("--gpus", default="2", help="the number of simulated GPUs")
    parser.add_argument("--processes", type=int, default=2, help="the number of processes for one suite")
    parser.add_argument("--keep", type=Path, help="a folder for the outcomes, so that a run can continue")
    parser.add_argument("--write", type=Path, metavar="JSON", help="the record to which the results are added")
    return parser.parse_args()


def suite(file: Path, asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Run one suite in several processes, and return its row of the record."""
    names = constants(file)
    parts = names.get("PARTS", asked.processes)
    outcomes = [folder / f"{asked.framework}-{file.stem}-{part}.jsonl" for part in range(1, parts + 1)]
    with ThreadPoolExecutor(asked.processes) as pool:
        for each in [
            pool.submit(run, file, asked, target, f"{part}/{parts}") for part, target in enumerate(outcomes, 1)
        ]:
            each.result()
    entries = [entry for target in outcomes for entry in read(target) if "test" in entry]
    return row(
        asked.framework, names["SUITE"], {name: version(name).split("+")[0] for name in names["TESTED"]}, entries
    )


def constants(file: Path) -> dict[str, Any]:
    """Return the constants of a file, which is not imported here."""
    body = ast.parse(file.read_text(encoding="utf-8")).body
    found = {}
    for each in body:
        if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name) and each.targets[0].id.isupper():
            try:
                found[each.targets[0].id] = ast.literal_eval(each.value)
            except ValueError:
                continue
    return found


def run(file: Path, asked: argparse.Namespace, target: Path, part: str) -> None:
    """Run a part of a suite; a test of which the process dies has failed."""
    run_all(
        target,
        lambda: run_once(file, asked, target, part),
        lambda ended: {"outcome": "failed", "cause": f"the process ended: {ended}"},
        file.name,
    )


def run_once(file: Path, asked: argparse.Namespace, target: Path, part: str) -> str:
    """Run the tests that have no outcome yet, and return how the process ended."""
    command = [sys.executable, "-m", "devshim", "run", "--gpus", asked.gpus, "-m", "pytest", "-q", "--no-header"]
    command += ["-p", "no:cacheprovider", "-p", "native_plugin", "-c", os.devnull, f"--rootdir={HERE}", "--tb=short"]
    command += [f"--timeout={SECONDS}", f"--native-outcomes={target}", f"--native-part={part}", str(file)]
    command += ["-k", asked.tests] if asked.tests else []
    path = [str(HERE), str(HERE.parent / "helpers"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "OMP_NUM_THREADS": "1"}
    with target.with_suffix(".txt").open("a", encoding="utf-8") as printed:
        done = subprocess.run(command, cwd=ROOT, env=environment, stdout=printed, stderr=printed, check=False)
    return f"exit status {done.returncode}"


if __name__ == "__main__":
    sys.exit(main())
