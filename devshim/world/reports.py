"""How a rank has ended, and the last report of one that runs: what the launcher knows of each."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SILENT", "WAITS", "Ended", "Report"]

SILENT = 2.0
"""Seconds without a heartbeat, after which a rank does not answer."""
WAITS = 2.0
"""Seconds in a collective, after which the agent of a rank says so to the launcher."""


@dataclass(frozen=True)
class Ended:
    """The end of a rank.

    Attributes:
        rank: Its number.
        status: Its exit status: negative for a signal, None if it was lost with its host.
        tail: The end of its output.
        at: The line of the program in its last heartbeat, which it may have left since.
        exit_at: The line that has ended it, without a traceback; empty if that is unknown.
    """

    rank: int
    status: int | None
    tail: str = ""
    at: str = ""
    exit_at: str = ""


@dataclass(frozen=True)
class Report:
    """The last report of a rank.

    Attributes:
        silent: Seconds since this report.
        step: How many collectives it has started.
        what: The collective that it is in, or None.
        seconds: How long it has been in it.
        at: The line of the program.
        exit_at: The line that has ended it, as in `Ended`.
        ends: True if the program has ended, but the process has not.
        raised: The type of the last exception that Python has stored, or an empty text; see `has_raised`.
        tail: The end of its output, if it has ended.
        engine: Whether it has an engine, as in `devshim.world.steps.Steps`.
    """

    silent: float = 0.0
    step: int = 0
    what: str | None = None
    seconds: float = 0.0
    at: str = ""
    exit_at: str = ""
    ends: bool = False
    raised: str = ""
    tail: str = ""
    engine: str = ""
