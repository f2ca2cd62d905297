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
    parser.add_argument("only", nargs="*", metavar="OPERATOR", help="as PyTorch spells it; without any, all")
    parser.add_argument(
        "--samples", type=int, default=0, help="of each operator, the first ones; 0, the default, for all"
    )
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--limit", type=float, default=300, help="seconds for one operator")
    parser.add_argument("--causes", type=int, default=3, help="how many to print of each failure")
    parser.add_argument("--json", type=Path, help="where to write all reports")
    asked = parser.parse_args()
    began = time.perf_counter()
    reports = sweep(asked.processes, asked.samples, asked.limit, asked.only)
    if asked.json:
        asked.json.write_text(json.dumps(reports, indent=1))
    show(reports, asked.causes)
    print(f"{time.perf_counter() - began:.0f} seconds")
    found = unexpected(reports)
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
