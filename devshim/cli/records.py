"""The recorded tour of each framework for this release, shown for frameworks that are not installed.

The records are in ``examples/tour/records.json``; ``nox -s tour`` writes them. Each framework's tests compare them
with the current tour.
"""

from __future__ import annotations

import json
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

from devshim.cli.chapters import FOLDER

__all__ = ["SHOWN", "frameworks", "lines", "title", "without_folder", "write"]

SHOWN = "torch"
"""The framework whose lines are shown next to those of NumPy, which has one device and few lines."""


@cache
def _records() -> dict[str, Any]:
    text = (FOLDER / "records.json").read_text(encoding="utf-8")
    read: dict[str, Any] = json.loads(text)
    return read


def lines(framework: str) -> dict[str, list[str]]:
    """Return the native lines of every step of the tour on a framework, by the step's name."""
    found: dict[str, list[str]] = _records()[framework]["steps"]
    return found


def title(framework: str) -> str:
    """Return a framework's name in its official spelling."""
    return str(_records()[framework]["title"])


def frameworks() -> list[str]:
    """Return the frameworks that have a record."""
    return list(_records())


def without_folder(line: str) -> str:
    """Return a line with each path in it shortened to the file's name: the tour writes into a temporary folder."""
    return re.sub(r"(['\"])/[^'\"]*/", r"\1", line)


def write(path: Path, tours: list[Path]) -> None:
    """Write the records of tours that ``devshim tour --json`` recorded."""
    found = {}
    for each in tours:
        record = json.loads(each.read_text(encoding="utf-8"))
        if record["backend"] != "numpy":
            steps = {step["name"]: [without_folder(line) for line in step["native"]] for step in record["steps"]}
            found[record["backend"]] = {"title": record["title"], "version": record["version"], "steps": steps}
    text = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]), [Path(each) for each in sys.argv[2:]])
