"""The command that measures frameworks one after another, each in its own process, and writes the page of results.

    python -m benchmarks torch=PYTHON jax=PYTHON ...     with the given interpreters
    python -m benchmarks torch --results-only            with this one; the results stay in build/bench/torch.json

An environment without an interpreter is measured with this one. This interpreter also makes the page, and needs
matplotlib.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.record import ORDER

RESULTS = Path("build/bench")
QUIET = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1"}
QUIET |= {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_NUM_INTEROP_THREADS": "1"}
"""One thread each: with two, a copy of 1 MiB waits for the other core while that core is busy."""
WHOLE = "benchmarks/test_training.py"
"""Whole programs, which run in their own process, as a user's program does.

JAX's loop had a ratio of 1.16 after the other benchmarks, and 1.01 to 1.04 in a fresh process.
"""


def measure(name: str, python: str, rounds: int) -> Path:
    """Run an environment's benchmarks in some processes, and return the path of the results."""
    path = RESULTS / f"{name}.json"
    command = [python, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--benchmark-quiet"]
    command += [f"--bench={name}", f"--bench-rounds={rounds}", f"--bench-json={path}"]
    runs = [["benchmarks", f"--ignore={WHOLE}"]]
    if name != "numpy":  # it has no gradients, and no second device
        runs += [[WHOLE, "--bench-add"], ["benchmarks", "--bench-simulated", "--bench-add"]]
    for more in runs:
        subprocess.run([*command, *more], check=True, env={**os.environ, **QUIET})
    return path


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("environments", nargs="+", metavar="NAME[=PYTHON]", help=", ".join(ORDER))
    parser.add_argument("--rounds", type=int, default=41, help="turns of each comparison (default: 41)")
    parser.add_argument("--results-only", action="store_true", help="do not write the page")
    options = parser.parse_args(arguments)
    pairs = [each.partition("=") for each in options.environments]
    results = [measure(name, python or sys.executable, options.rounds) for name, _, python in pairs]
    if not options.results_only:
        from benchmarks.report import main as report

        sys.exit(report([str(path) for path in results]))


if __name__ == "__main__":
    main()
