"""Descriptions of how a process ended."""

from __future__ import annotations

import re

from devshim.registry import processes

__all__ = ["describe_end", "last_line"]

_CAUSE = re.compile(r"^F\d{4} |Check failed|^terminate called|^what\(\):|^Fatal Python error")
"""A line with the reason why C++ or Python ends the process; the lines after it are a list of calls."""
_CALLS = re.compile(r"^(@ +0x|\*\*\* |File \"|(Current thread|Thread|Stack) |Extension modules|<no Python frame>)")
"""A line of a list of calls."""


def describe_end(code: int, errors: str) -> str:
    """Return how a process ended: its signal or exit status, and the line of its standard error that says why."""
    return processes.describe_exit(code) + last_line(errors, crashed=code < 0)


def last_line(errors: str, crashed: bool = False) -> str:
    """Return the most useful line of standard error: a crash's cause, or the last line; empty without lines."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    lines = [line for line in lines if not _CALLS.match(line)]
    causes = [line for line in lines if crashed and _CAUSE.search(line)]
    found = (causes or lines or [""])[-1]
    return f"; it wrote: {found[:300]}" if found else ""
