"""What the tests of several processes share: who is running, and where it listens."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

LISTENING = "0A"


@pytest.fixture
def listening() -> Callable[..., set[str]]:
    """Return where processes, and all that they started, accept connections, in the notation of the kernel."""

    def found(*processes: int) -> set[str]:
        return addresses(set().union(*map(descendants, processes)))

    return found


@pytest.fixture(name="descendants")
def _descendants() -> Callable[[int], set[int]]:
    """Return a process, and all that it started."""
    return descendants


def descendants(process: int) -> set[int]:
    """Return a process, and all that it started."""
    found = {process}
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        for child in task.read_text().split():
            found |= descendants(int(child))
    return found


def addresses(processes: set[int]) -> set[str]:
    """Return where processes accept connections, in the notation of the kernel."""
    sockets = set()
    for process in processes:
        try:
            targets = [os.readlink(path) for path in Path(f"/proc/{process}/fd").iterdir()]
        except OSError:  # it ended
            continue
        sockets |= {target[8:-1] for target in targets if target.startswith("socket:[")}
    tables = [Path("/proc/net", name).read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
    rows = [row.split() for table in tables for row in table]
    return {row[1] for row in rows if row[3] == LISTENING and row[9] in sockets}
