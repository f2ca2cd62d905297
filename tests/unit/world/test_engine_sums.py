"""Tests of the checksum that says if the sums over ranks were measured with today's code."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.append(str(ROOT / "tests" / "world"))
from engine_sums import checksum  # noqa: E402

SOURCE = '''
"""A module."""
async def add(x: "int", /, *more: int, by=-1.5e300, **named) -> str:
    """A function."""
    limit = 3
    """A variable."""
    parts = [f"{x!r:>{by}} of" f" {{{len(more)}}}" "" f"" "é", (), {}, ..., None, 1_000, 2j, b"\\0"]
    return x[1:2, ...] if x else {**named} @ parts
'''


def test_a_program_has_one_checksum_in_every_version_of_python() -> None:
    assert checksum(SOURCE) == "04b79dd6255a179d"


def test_only_code_changes_the_checksum() -> None:
    same = SOURCE.replace("/, ", "/,  # a comment\n")
    for old in ("A module", "A function", "A variable"):
        same = same.replace(old, "Another")
    assert checksum(same) == checksum(SOURCE)
    for old, new in (("by=-1", "by=-2"), ("} of", "} to"), ("[1:2", "[1:3"), ("@", "+"), ("!r", "!s"), ("é", "e")):
        assert checksum(SOURCE.replace(old, new)) != checksum(SOURCE), old
