"""The first code of a process that must not outlive its parent: ``python starting.py PARENT SIGNAL COMMAND...``.

The kernel sends the signal to this process when the parent's thread ends, regardless of what both are doing. The
setting survives ``exec``, so the command also gets the signal. It runs before the command, not between fork and exec of
the parent, because a parent with many threads may hold locks there.
"""

from __future__ import annotations

import os
import signal
import sys

_SET_PARENT_DEATH_SIGNAL = 1
_HEARTBEAT = "DEVSHIM_HEARTBEAT"


def main(parent: int, number: int, command: list[str]) -> None:
    """Tie this process to its parent, and become the command."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, number)
    if os.getppid() != parent:  # it ended before the line above
        os._exit(70)
    descriptor = os.environ.get(_HEARTBEAT)
    if descriptor and ":" not in descriptor:  # of a rank; a job that a rank starts inherits the rank's own
        signal.pthread_sigmask(signal.SIG_SETMASK, ())  # Ray's processes block SIGINT, which children inherit
        os.environ[_HEARTBEAT] = f"{descriptor}:{os.getpid()}"
    os.execvpe(command[0], command, os.environ)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
