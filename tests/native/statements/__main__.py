"""The program that records what a real card gives: ``python tests/native/statements torch --record``.

It needs one NVIDIA GPU, and the framework's build for it. Without ``--record`` it runs the statements on a simulated
GPU, and prints what differs from the recording.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from compare import problems, recording_file
from run_statements import HERE

_RUN = str(HERE / "run_statements.py")


def results(framework: str, *before: str) -> dict[str, Any]:
    """Run the statements in their own process, and return the versions and the results."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "results.json"
        subprocess.run([sys.executable, "-W", "ignore", *before, _RUN, framework, str(file)], check=True, timeout=600)
        found: dict[str, Any] = json.loads(file.read_text())
    return found


def simulated(framework: str) -> dict[str, Any]:
    """Return what the statements give on a simulated GPU."""
    return results(framework, "-m", "devshim", "run", "--gpus", "1")


def main() -> int:
    """Record, or compare, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python tests/native/statements", description=__doc__)
    parser.add_argument("framework", choices=("torch", "jax"))
    parser.add_argument("--record", action="store_true", help="run on the real card, and write the recording")
    options = parser.parse_args()
    if options.record:
        query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        card = subprocess.run(query, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()[0]
        name, driver = card.split(", ")
        found = {
            "date": dt.date.today().isoformat(),
            "card": name,
            "driver": driver,
            **results(options.framework),
        }
        recording_file(options.framework).write_text(json.dumps(found, indent=1) + "\n")
        return 0
    found = list(problems(options.framework, simulated(options.framework)["results"]))
    print(*found, sep="\n")
    return len(found) > 0


if __name__ == "__main__":
    raise SystemExit(main())
