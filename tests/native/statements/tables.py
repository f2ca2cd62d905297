"""The section of the guide to CUDA programs that lists the differences.

``python tests/native/statements/tables.py`` writes it, and a test holds it up to date.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from compare import recording
from differences import DIFFERENCES, Difference
from run_statements import HERE

GUIDE = Path(HERE.parents[2], "docs", "guides", "cuda-programs.md")
TITLE = "## What differs from a real card"
TITLES = {"torch": "PyTorch", "jax": "JAX"}
_SECTION = re.compile(rf"{TITLE}\n.*?(?=\n## )", re.DOTALL)


def section() -> str:
    """Return the section, with its title."""
    found = {framework: recording(framework) for framework in TITLES}
    counts = " and ".join(f"{len(found[each]['results'])} statements of {TITLES[each]}" for each in TITLES)
    first = found["torch"]
    versions = ", ".join(f"{TITLES[each]} {found[each][each]}" for each in TITLES)
    text = (
        f"{counts} were run on an {first['card']} (driver {first['driver']}, {versions}, {first['date']}). Tests "
        "compare what simulated GPUs give with that record: the text of each value, and the class and the first "
        "sentence of each error. `python tests/native/statements torch --record` records it on another card. These "
        "statements differ:"
    )
    tables = [_table(framework, found[framework]["results"]) for framework in TITLES]
    return "\n".join([TITLE, "", textwrap.fill(text, 100, break_on_hyphens=False), "", "\n\n".join(tables), ""])


def _table(framework: str, recorded: dict[str, dict[str, str]]) -> str:
    rows = [f"| {TITLES[framework]} | why |", "|---|---|"]
    rows += [f"| {_statements(each, recorded)} | {each.reason} |" for each in DIFFERENCES[framework]]
    return "\n".join(rows)


def _statements(difference: Difference, recorded: dict[str, dict[str, str]]) -> str:
    by_text = [statement for statement, result in recorded.items() if difference.is_recorded(result)]
    shown = [f"`{each}`" for each in (*difference.statements, *by_text[:1])]
    more = len(by_text) - 1
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def main() -> None:
    """Write the section."""
    GUIDE.write_text(_SECTION.sub(lambda _: section(), GUIDE.read_text()))


if __name__ == "__main__":
    main()
