"""The other ranks of this host, as the system lists them: which have ended, and which are stopped.

A framework's engine reports a closed connection or a time-out, and names no rank. Ranks of one host share a parent, the
launcher or its agent, and each has its number in its environment. A rank can therefore find out which others are
missing, without a connection. It learns nothing about ranks of other hosts.

If each rank has a wrapper, as in ``mpirun -n 2 bash run.sh``, the wrappers have the launcher as their parent, and end
with their ranks.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from devshim.contract.ranks import Place
from devshim.registry.processes import system_facts
from devshim.world.launchers import is_wrapper, rank_of

__all__ = ["ended", "launcher", "stopped"]

_DEAD, _STOPPED = "ZX", "Tt"


def launcher() -> int:
    """Return the process that started this rank, or the wrapper of this rank."""
    return _launcher(os.getppid())


@lru_cache(maxsize=1)  # a rank whose parent has ended has another one
def _launcher(parent: int) -> int:
    own = _variables(os.getpid())
    with suppress(OSError, ValueError):  # a process of another user, such as the daemon of Slurm, is not a wrapper
        while parent > 1 and is_wrapper(_variables(parent), own):
            parent = int(system_facts(parent)[1])
    return parent


def _variables(process: int) -> dict[str, str]:
    """Return the environment with which a process started."""
    pairs = (each.partition("=") for each in Path(f"/proc/{process}/environ").read_text(errors="replace").split("\0"))
    return {name: value for name, _, value in pairs}


def ended(place: Place) -> list[int]:
    """Return the ranks of this host that no longer run; none if that is unknown."""
    here, states = _expected_ranks(place), _states()
    return sorted(here - set(states)) if place.rank in states else []


def stopped(place: Place) -> list[int]:
    """Return the ranks of this host that are stopped, as by SIGSTOP."""
    return sorted(rank for rank, state in _states().items() if state in _STOPPED and rank in _expected_ranks(place))


def _expected_ranks(place: Place) -> set[int]:
    """Return the ranks of this host."""
    if place.one_host:
        return set(range(place.size))
    host = place.host_of(place.rank)
    return {rank for rank in range(place.size) if host and place.host_of(rank) == host}


def _states() -> dict[int, str]:
    """Return the running ranks with the same parent and engine address as this one, each with its state."""
    found, parent, port = {}, launcher(), os.environ.get("MASTER_PORT")
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            state, its, *_ = system_facts(int(path.name))
            if int(its) != parent or state in _DEAD:
                continue
            variables = _variables(int(path.name))
            rank = rank_of(variables)
            if rank is not None and variables.get("MASTER_PORT") == port:
                found[rank] = state
    return found
