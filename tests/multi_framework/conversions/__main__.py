"""The program that converts between all frameworks, in every way, and publishes the results.

``python tests/multi_framework/conversions`` converts and prints what is wrong; exit code 1 if something is.
``--write RECORD PAGE`` also writes the results, and the page made from them, if nothing is wrong.
``--check RECORD PAGE`` converts nothing: it makes the page again from the record; exit code 1 if it differs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from page import page
from pool import sweep
from record import read, record, versions, write, wrong


def main(arguments: Sequence[str]) -> int:
    """Run one of the three commands, and return the exit code."""
    if arguments[:1] == ["--check"] and len(arguments) == 3:
        return _check(Path(arguments[1]), Path(arguments[2]))
    if arguments and not (arguments[0] == "--write" and len(arguments) == 3):
        print(__doc__, file=sys.stderr)
        return 2
    began = time.perf_counter()
    results = sweep()
    found = wrong(results)
    print(*found, f"{len(found)} wrong, {time.perf_counter() - began:.0f} seconds", sep="\n")
    if arguments and not found:
        kept = record(results, versions())
        write(kept, Path(arguments[1]))
        Path(arguments[2]).write_text(page(kept), encoding="utf-8")
    return int(bool(found))


def _check(kept: Path, target: Path) -> int:
    if target.read_text(encoding="utf-8") == page(read(kept)):
        return 0
    print(f"{target} is not what {kept} makes: run `nox -s conversions`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
