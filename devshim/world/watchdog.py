"""The process that ends the ranks of a host if their agent is killed: ``python watchdog.py``, started by the agent.

The kernel kills a rank whose agent ends, but not the processes that the rank has started, such as those that load data.
The agent writes ``+123`` when it has started a rank as process 123, which leads a process group, and ``-123`` when
that group has ended. At the end of standard input, the agent has ended, and each remaining group is killed. This
process is not a child of the agent: Ray kills the children of an actor with it.

The agent ends groups as this process does: the resource tracker of multiprocessing, which each process has that uses
shared memory or named semaphores, removes what a killed process has left, and then ends.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress

TYPE_CHECKING: bool = False  # importing `typing` would delay the agent, which waits for this process
if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["end_groups", "is_tracker", "main"]

_TRACKER = b"resource_tracker import main"
"""A part of the command of a resource tracker: that of multiprocessing, and of its variant in joblib."""
_PATIENCE = 1.0
"""Seconds that resource trackers may take to remove what is left."""
_MOMENT = 0.01


def main(lines: Iterable[str]) -> None:
    """Read the process groups, and kill those that are left at the end."""
    groups: set[int] = set()
    for line in lines:
        number = int(line[1:])
        if line[0] == "+":
            groups.add(number)
        else:
            groups.discard(number)
    end_groups(groups)


def end_groups(groups: Iterable[int]) -> None:
    """Kill all processes of some process groups, resource trackers last: those may first remove what is left."""
    wanted = set(groups)
    until, moment = time.monotonic() + _PATIENCE, _MOMENT
    while time.monotonic() < until:
        left = _members(wanted)
        for process in left:
            if not is_tracker(process):
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(process, signal.SIGKILL)
        if not left:
            break
        time.sleep(moment)
        moment *= 2
    for group in wanted:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


def _members(groups: set[int]) -> list[int]:
    """Return the running processes of some groups; none on a system without ``/proc``."""
    found = []
    with suppress(OSError):
        for name in filter(str.isdecimal, os.listdir("/proc") if groups else ()):
            with suppress(OSError):
                state, _, group = _read(f"/proc/{name}/stat").rpartition(b")")[2].split()[:3]
                if int(group) in groups and state not in (b"Z", b"X"):
                    found.append(int(name))
    return found


def is_tracker(process: int) -> bool:
    """Return True for a resource tracker."""
    with suppress(OSError):
        return _TRACKER in _read(f"/proc/{process}/cmdline")
    return False


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


if __name__ == "__main__":
    if os.fork() == 0:
        main(sys.stdin)
