"""The process that ends the ranks of a host if their agent is killed: ``python watchdog.py``, started by the agent.

The kernel kills a rank whose agent ends, but not the processes that the rank has started, such as those that load data.
The agent writes ``+123`` when it has started a rank as process 123, which leads a process group, and ``-123`` when
that group has ended. At the end of standard input, the agent has ended, and each remaining group is killed. This
process is not a child of the agent: Ray kills the children of an actor with it.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress

TYPE_CHECKING: bool = False  # importing `typing` would delay the agent, which waits for this process
if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["main"]


def main(lines: Iterable[str]) -> None:
    """Read the process groups, and kill those that are left at the end."""
    groups: set[int] = set()
    for line in lines:
        number = int(line[1:])
        if line[0] == "+":
            groups.add(number)
        else:
            groups.discard(number)
    for group in groups:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    if os.fork() == 0:
        main(sys.stdin)
