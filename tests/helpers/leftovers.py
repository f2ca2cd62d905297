"""The processes, ports, shared memory and temporary folders that a test run has on this machine now.

A process belongs to the run if its environment contains the mark, which its children inherit, wherever the system
moves them when their parent ends.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from listening import listening

__all__ = ["MARK", "marked", "nothing_left", "traces"]

MARK = "RUN_OF_TESTS"
_SHARED = Path("/dev/shm")
_POOL = "ray::IDLE"
"""A process that Ray's node keeps for later: it belongs to the cluster and not to a job."""
_PATIENCE = 15.0


def marked() -> dict[int, str]:
    """Return the processes of this run without this one: number -> command, in which Ray shows what they do."""
    mark, found = f"{MARK}={os.environ[MARK]}".encode(), {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or belongs to another user
            if int(path.name) != os.getpid() and mark in (path / "environ").read_bytes().split(b"\0"):
                found[int(path.name)] = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return {process: command for process, command in found.items() if not command.startswith(_POOL)}


def traces() -> set[str]:
    """Return a line for each process, port, entry of shared memory and temporary folder."""
    processes = marked()
    found = {f"process {process}: {command}" for process, command in processes.items()}
    found |= {f"port {address}" for address in listening({os.getpid(), *processes})}
    names = {path.name for path in _SHARED.glob("*")}
    names -= _of_others(processes) if names else set()
    found |= {f"shared memory {name}" for name in names if (_SHARED / name).exists()}  # others may have ended meanwhile
    return found | {f"folder {path.name}" for path in Path(tempfile.gettempdir()).glob("devshim-*")}


def _of_others(processes: dict[int, str]) -> set[str]:
    """Return the shared memory that processes which are not of this run have mapped."""
    found = set()
    for path in Path("/proc").glob("[0-9]*"):
        if int(path.name) not in {os.getpid(), *processes}:
            with suppress(OSError):  # it has ended, or belongs to another user
                lines = (path / "maps").read_text().splitlines()
                found |= {line.rpartition("/")[2] for line in lines if f" {_SHARED}/" in line}
    return found


@contextmanager
def nothing_left() -> Iterator[None]:
    """Fail if something appeared in the block and did not disappear soon after it."""
    before = traces()
    yield
    until = time.monotonic() + _PATIENCE
    while (left := traces() - before) and time.monotonic() < until:
        time.sleep(0.2)
    assert not left, sorted(left)
