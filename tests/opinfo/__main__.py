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
from pathlib import Path

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
    parser.add_argument("--json", type=Path, help="a file to write all reports to")
    options = parser.parse_args()
    start = time.perf_counter()
    reports = sweep(options.processes, options.samples, options.limit, options.only)
    if options.json:
        options.json.write_text(json.dumps(reports, indent=1))
    show(reports, options.causes)
    print(f"{time.perf_counter() - start:.0f} seconds")
    differences = unexpected(reports)
    for each in differences:
        print(each)
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
