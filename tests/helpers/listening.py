"""The addresses at which processes accept connections."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

LISTENING = "0A"


def descendants(process: int) -> set[int]:
    """Return a process, and all that it started; threads and processes may end meanwhile."""
    found = {process}
    with suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{process}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):
                for child in (task / "children").read_text().split():
                    found |= descendants(int(child))
    return found


def listening(processes: set[int]) -> set[str]:
    """Return the addresses where processes accept connections, in the notation of the kernel."""
    sockets = {name[8:-1] for process in processes for name in _open(process) if name.startswith("socket:[")}
    tables = [Path("/proc/net", name).read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
    rows = [row.split() for table in tables for row in table]
    return {row[1] for row in rows if row[3] == LISTENING and row[9] in sockets}


def _open(process: int) -> list[str]:
    """Return the names of a process's open files; none if it has ended."""
    names = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for path in Path(f"/proc/{process}/fd").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):  # closed in between
                names.append(os.readlink(path))
    return names


def is_loopback(address: str) -> bool:
    """Return True for 127.x.x.x, also as an address of IP version 6, and for ::1."""
    host = address.partition(":")[0]
    return host.endswith("7F") or host == "00000000000000000000000001000000"
