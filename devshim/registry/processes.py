"""Processes: options and a channel for answers of those that devshim starts, their signals, and facts of the system."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TextIO

__all__ = ["answer_stream", "describe_exit", "interpreter_options", "is_alive", "signal_name", "system_facts"]


def interpreter_options() -> list[str]:
    """Return the options with which this interpreter was started, so that another one can share them."""
    named = [f"-X{name}" if value is True else f"-X{name}={value}" for name, value in sys._xoptions.items()]
    return [*named, *(f"-W{option}" for option in sys.warnoptions), *["-O"] * sys.flags.optimize]


def answer_stream() -> TextIO:
    """Return standard output as a stream for answers; what else is printed from now on goes to standard error.

    This includes the output of a framework's C++ code.
    """
    stream = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return stream


def signal_name(code: int) -> str:
    """Return the name of the signal that ended a process with a negative exit code."""
    try:
        return signal.Signals(-code).name
    except ValueError:  # a real-time signal
        return f"signal {-code}"


def describe_exit(status: int) -> str:
    """Return how a process ended, from its exit status: ``was killed by SIGKILL``, ``ended with exit status 3``."""
    return f"was killed by {signal_name(status)}" if status < 0 else f"ended with exit status {status}"


def is_alive(process: int) -> bool:
    """Return True if there is a process of this number, of any user."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # of another user
        pass
    return True


def system_facts(process: int) -> list[str]:
    """Return what Linux reports of a process: its state, parent, group, session, and in item 19 when it started.

    Raises:
        OSError: There is no such process, or no ``/proc``.
    """
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
