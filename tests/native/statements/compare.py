"""Compare what statements give on a simulated GPU with the recording of a real card."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from differences import DIFFERENCES, NUMBERS
from run_statements import HERE, groups

Result = dict[str, Any]
_ADDRESS = re.compile(r"0x[0-9a-f]+")
_NUMPYS = "Unsupported device in DLTensor."
"""The text of NumPy's error for memory that it cannot read: a RuntimeError before NumPy 2.5, then a BufferError."""
_SENTENCE = re.compile(r"(?<=[.!])\s|\n")


def recording_file(framework: str) -> Path:
    """Return the file with the recording of a framework."""
    return HERE / "recorded" / f"{framework}.json"


def recording(framework: str) -> dict[str, Any]:
    """Return the recording of a framework: date, card, versions, and the result of each statement."""
    found: dict[str, Any] = json.loads(recording_file(framework).read_text())
    return found


def alike(statement: str, recorded: Result, seen: Result) -> bool:
    """Return True if a program cannot tell both results apart.

    Values have the same text, except addresses. An error is one that ``except`` with the recorded class catches, and
    has the first sentence of the recorded text in its own.
    """
    if "error" in recorded:
        names = (seen.get("error"), *seen.get("bases", ()))
        catches = recorded["error"] in names or (recorded["text"] == _NUMPYS and "RuntimeError" in names)
        return catches and _SENTENCE.split(recorded["text"])[0] in seen["text"]
    if "error" in seen:
        return False
    if statement in NUMBERS:
        return type(ast.literal_eval(recorded["value"])) is type(ast.literal_eval(seen["value"]))
    return _without_addresses(recorded) == _without_addresses(seen)


def _without_addresses(result: Result) -> tuple[str, str]:
    return _ADDRESS.sub("0x", result["value"]), result.get("printed", "")


def problems(framework: str, seen: dict[str, Result], recorded: dict[str, Result] | None = None) -> Iterator[str]:
    """Yield each mistake in the list, such as a statement that differs and is not listed."""
    recorded = recording(framework)["results"] if recorded is None else recorded
    listed = DIFFERENCES[framework]
    statements = [each for group in groups(framework).values() for each in group]
    if statements != list(recorded):
        yield f"the recording is of other statements: {sorted(set(statements) ^ set(recorded))}"
    unlike = {each for each in statements if each in recorded and not alike(each, recorded[each], seen[each])}
    for each in sorted(unlike):
        if not any(difference.covers(each, recorded[each], seen[each]) for difference in listed):
            yield f"{each}\n  card      {recorded[each]}\n  simulated {seen[each]}"
    for difference in listed:
        claimed = {each for each in recorded if difference.is_recorded(recorded[each])} | {*difference.statements}
        yield from (f"{each} does not differ, and is listed: {difference.reason}" for each in sorted(claimed - unlike))
        if not claimed:
            yield f"no statement differs for a listed reason: {difference.reason}"
