"""The other ranks of this host, as the system lists them: which have ended, and which are stopped.

A framework's engine says that a connection is closed, or that time is over, and names no rank. Ranks of one host have
their parent in common, the launcher or its agent, and each has its number in its environment. So a rank finds out
which others are missing, without a connection. About ranks of other hosts this knows nothing.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from devshim.contract.ranks import Place
from devshim.world.launchers import rank_of

__all__ = ["ended", "stopped"]

_DEAD, _STOPPED = "ZX", "Tt"


def ended(place: Place) -> list[int]:
    """Return the ranks of this host that do not run any more; none if that is unknown."""
    here, states = _expected(place), _states()
    return sorted(here - set(states)) if place.rank in states else []


def stopped(place: Place) -> list[int]:
    """Return the ranks of this host that somebody has stopped, as SIGSTOP does."""
    return sorted(rank for rank, state in _states().items() if state in _STOPPED and rank in _expected(place))


def _expected(place: Place) -> set[int]:
    """Return the ranks of this host."""
    if place.one_host:
        return set(range(place.size))
    host = place.host_of(place.rank)
    return {rank for rank in range(place.size) if host and place.host_of(rank) == host}


def _states() -> dict[int, str]:
    """Return the ranks that run and have the parent and the engine's address of this one, each with its state."""
    found, parent, port = {}, os.getppid(), os.environ.get("MASTER_PORT")
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            state, its, *_ = (path / "stat").read_text().rpartition(")")[2].split()
            if int(its) != parent or state in _DEAD:
                continue
            pairs = (each.partition("=") for each in (path / "environ").read_text(errors="replace").split("\0"))
            variables = {name: value for name, _, value in pairs}
            rank = rank_of(variables)
            if rank is not None and variables.get("MASTER_PORT") == port:
                found[rank] = state
    return found
