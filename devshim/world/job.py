"""A job as plain data: what each rank runs, where, and how long it may take."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

from devshim.errors import ArgumentError
from devshim.errors.formatting import show

__all__ = ["Job", "count", "require_possible", "seconds"]

_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class Job:
    """The request of a call of `devshim.launch`.

    Attributes:
        command: The program and its arguments; None if the ranks run a function.
        code: The pickled function and its arguments; empty for a program.
        hosts: Names of hosts; None for all hosts of the cluster, or this machine.
        ranks_per_host: How many ranks on each host; None for as many as its GPUs allow.
        cards_per_rank: How many GPUs each rank gets.
        simulate: How many GPUs to simulate in each rank; None for real ones.
        timeout: Seconds for which a collective may wait.
        start_timeout: Seconds that the start may take.
        retries: How many times a job that failed starts again.
        min_ranks: The minimum number of ranks for a restart after a host is lost; None for the original number.
        environment: Environment variables for the ranks.
        folder: The working directory.
        cluster: The address of a Ray cluster; None to start one on this machine for this job.
        progress: Seconds between two progress reports of a rank, for a table; None for no reports.
    """

    command: list[str] | None = None
    code: bytes = b""
    hosts: list[str] | None = None
    ranks_per_host: int | None = None
    cards_per_rank: int = 1
    simulate: int | None = None
    timeout: float = 60.0
    start_timeout: float = 300.0
    retries: int = 0
    min_ranks: int | None = None
    environment: dict[str, str] = field(default_factory=dict)
    folder: str = ""
    cluster: str | None = None
    progress: float | None = None


def seconds(value: Any, name: str) -> float:
    """Return a duration in seconds, from a number or a text such as ``"60s"``, ``"5min"`` or ``"1h"``.

    Raises:
        ArgumentError: It is not a positive duration.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-z]*)\s*", value) if type(value) is str else None
    if match is not None and match[2] in _UNITS:
        found = float(match[1]) * _UNITS[match[2]]
    else:
        found = float(value) if type(value) in (int, float) else math.nan
    if not 0 < found < math.inf:
        msg = f"{name} is {show(value)}, which is not a positive duration"
        raise ArgumentError(msg, f'give seconds, or a text such as "60s" or "5min": {name}="60s"')
    return found


def count(value: Any, name: str, least: int) -> int:
    """Return a whole number that is at least ``least``.

    Raises:
        ArgumentError: It is not a whole number, or is less.
    """
    if type(value) is not int or value < least:
        msg = f"{name} is {show(value)}, which is not a whole number of at least {least}"
        raise ArgumentError(msg, f"give a number: {name}={max(least, 1)}")
    return value


def require_possible(min_ranks: int | None, size: int) -> None:
    """Refuse more ranks for a restart than a job has from the start.

    Raises:
        ArgumentError: ``min_ranks`` is more than ``size``.
    """
    if min_ranks is not None and min_ranks > size:
        msg = f"min_ranks is {min_ranks}, and the job has {size} rank{'s' if size > 1 else ''} before any host is lost"
        raise ArgumentError(msg, f"min_ranks={size} at most; it is how few may be left for a restart")
