"""The processes of a session, which outlive their parents: Ray leaves helpers behind that end a minute later.

A process that starts a session gives it its number. Ending this process therefore includes the rest of its session.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from devshim.registry.processes import system_facts

__all__ = ["DEAD", "end", "finish", "kill", "members"]

_ENDING = 5.0
DEAD = ("Z", "X")
"""The states of processes that have ended; their parents may not yet have waited for them."""


def members(session: int) -> list[int]:
    """Return the running processes of a session except its first one; none on a system without ``/proc``."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, _, _, its = system_facts(int(path.name))[:4]
            if int(its) == session and state not in DEAD:
                found.append(int(path.name))
    return [process for process in found if process != session]


def end(session: int) -> None:
    """Kill all other processes of a session, and wait until they have ended."""
    until = time.monotonic() + _ENDING
    while (left := members(session)) and time.monotonic() < until:
        kill(left)
        time.sleep(0.02)


def kill(processes: Iterable[int]) -> None:
    """Kill processes, some of which may have ended."""
    for process in processes:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process, signal.SIGKILL)


def finish(process: subprocess.Popen[bytes] | subprocess.Popen[str], patience: float) -> None:
    """Wait for the first process of a session, kill it if it takes longer, and end the rest of its session.

    Until the process is waited for, the system does not give its number to another one.
    """
    until = time.monotonic() + patience
    while process.returncode is None and _runs(process.pid):
        if time.monotonic() > until:
            process.kill()
        time.sleep(0.02)
    end(process.pid)
    process.wait()


def _runs(process: int) -> bool:
    try:
        return os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    except ChildProcessError:
        return False
