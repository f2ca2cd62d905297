"""The files of recorded test suites: the outcomes of a run, the record beside the docs, and the page made from it.

The recorders in tests/ports/suites and tests/native_suites run tests of other projects in processes that may die.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

__all__ = ["append", "merge", "read", "run_all", "with_tables", "write_or_check"]

MARKS = ("<!-- suites -->\n", "<!-- end of suites -->\n")
"""The lines of a page between which the tables are."""

Entry = dict[str, Any]


# ---------------------------------------------------------------------- outcomes
def read(path: Path) -> list[Entry]:
    """Return the entries of a file of outcomes, none if it does not exist."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def append(path: Path, entry: Entry) -> None:
    """Append an entry to a file of outcomes."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")


def run_all(path: Path, run_once: Callable[[], str], died: Callable[[str], Entry], what: str) -> list[Entry]:
    """Run tests until all have an outcome, and return the entries.

    Args:
        path: The file of outcomes. The processes write ``start`` and ``test`` to it for each test, and ``done`` last.
        run_once: Runs the tests without an outcome in a process, and returns how that ended.
        died: Returns the outcome of a test of which a process died, from how the process ended.
        what: Words for the error if a process dies before its first test.
    """
    entries = read(path)
    while not any("done" in entry for entry in entries):
        begun = len(entries)
        ended = run_once()
        entries = read(path)
        started = [entry["start"] for entry in entries if "start" in entry]
        ran = {entry["test"] for entry in entries if "test" in entry}
        if started and started[-1] not in ran:
            append(path, {"test": started[-1], **died(ended)})
        elif len(entries) == begun:
            raise SystemExit(f"{what}: {ended}: see {path.with_suffix('.txt')}")
    return entries


# ---------------------------------------------------------------------- record and page
def merge(path: Path, made: Entry, key: Callable[[Entry], Any], order: Callable[[Entry], Any]) -> None:
    """Add a row to the record, remove an earlier one with the same key, and sort the rows."""
    old = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    rows = {key(each): each for each in [*old, made]}
    path.write_text(json.dumps(sorted(rows.values(), key=order), indent=1) + "\n", encoding="utf-8")


def with_tables(text: str, tables: str) -> str:
    """Return a page with new tables between the marks."""
    before, rest = text.split(MARKS[0])
    _, after = rest.split(MARKS[1])
    return f"{before}{MARKS[0]}\n{tables}\n\n{MARKS[1]}{after}"


def write_or_check(arguments: Sequence[str], page: Callable[[str, list[Entry]], str]) -> int:
    """Run ``--write`` or ``--check`` with RECORD and PAGE, and return the exit code: 1 if the page is not up to date.

    Args:
        arguments: The command and the two paths.
        page: Returns the text of a page with the tables of a record.
    """
    command, record, target = arguments[0], Path(arguments[1]), Path(arguments[2])
    text = target.read_text(encoding="utf-8")
    made = page(text, json.loads(record.read_text(encoding="utf-8")))
    if command == "--check":
        return int(made != text)
    target.write_text(made, encoding="utf-8")
    return 0
