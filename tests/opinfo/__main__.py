"""The program that runs PyTorch's own operator database on a simulated GPU: ``python tests/opinfo``.

It compares every sample of every operator on the GPU with the host: forward, backward, in place and into ``out=``, with
the device of each result and gradient. It prints how many operators pass, and the causes of the failures. The exit
status is 0 only for the known outcome: at most the allowed number fail, `known.KNOWN` names every failure, and none
that it names passes.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from outcome import show, unexpected
from pool import sweep


def main() -> int:
    """Run the exam and return the exit status."""
    parser = argparse.ArgumentParser(prog="python tests/opinfo", description=__doc__)
    parser.add_argument(
        "only", nargs="*", metavar="OPERATOR", help="the name of an operator in the database; by default, all operators"
    )
    parser.add_argument(
        "--samples", type=int, default=0, help="the number of samples of each operator; 0, the default, for all"
    )
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--limit", type=float, default=300, help="the time limit for one operator, in seconds")
    parser.add_argument("--causes", type=int, default=3, help="the number of causes to print for each failure")
    parser.add_argument("--native-names", action="store_true", help="name the GPU cuda:1, as PyTorch names a real one")
    parser.add_argument("--json", type=Path, help="a file to write all reports to")
    parser.add_argument("--record", type=Path, help="the record of suites to add the results to, native-suites.json")
    options = parser.parse_args()
    start = time.perf_counter()
    reports = sweep(options.processes, options.samples, options.limit, options.only, options.native_names)
    if options.json:
        options.json.write_text(json.dumps(reports, indent=1))
    if options.record:
        record(reports, options.record)
    show(reports, options.causes)
    print(f"{time.perf_counter() - start:.0f} seconds")
    differences = unexpected(reports)
    for each in differences:
        print(each)
    return 1 if differences else 0


def record(reports: list[dict[str, Any]], path: Path) -> None:
    """Add the results to the record of `tests/native_suites`."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "native_suites"))
    from native_record import merge, row

    outcomes = [
        {
            "test": report["operator"],
            "outcome": "failed" if report["causes"] else "passed",
            "cause": next(iter(report["causes"]), ""),
        }
        for report in reports
    ]
    samples = str(sum(report["samples"] for report in reports))
    versions = {"torch": version("torch").split("+")[0], "samples": samples}
    merge(path, row("torch", "operators (OpInfo): every way to call each, compared with the CPU", versions, outcomes))


if __name__ == "__main__":
    sys.exit(main())
