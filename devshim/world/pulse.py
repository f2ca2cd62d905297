"""The pulse of a rank: a thread that writes to the agent which collective the program is in, and at which line.

It starts before the program does. It imports the standard library alone, so that it also speaks while a framework is
still being imported. If the agent has gone, it ends the rank: a rank never outlives its job.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import sysconfig
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["INTERVAL", "begin", "is_program", "position"]

INTERVAL = 0.5
"""Seconds between two lines."""

_VARIABLE = "DEVSHIM_PULSE"
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_steps: Any = None
_running: int | None = None


def begin(steps: Any = None) -> None:
    """Start the thread in a process that an agent started; with steps, report their collectives from now on.

    Args:
        steps: An object with the attributes ``number``, and ``doing`` with ``number``, ``what`` and ``began``.
    """
    global _steps, _running
    _steps = steps if steps is not None else _steps
    descriptor, _, process = os.environ.get(_VARIABLE, "").partition(":")
    if not process or int(process) != os.getpid() or _running == os.getpid():
        return  # no agent, a child process of a rank, or a second call
    _running = os.getpid()
    os.set_inheritable(int(descriptor), False)
    threading.Thread(target=_beat, args=(int(descriptor),), name="devshim-pulse", daemon=True).start()


def _beat(descriptor: int) -> None:
    main = threading.main_thread().ident or 0
    while True:
        line = json.dumps(_report(main)) + "\n"
        try:
            os.write(descriptor, line.encode())
        except OSError:
            _end()
        time.sleep(INTERVAL)


def _report(main: int) -> dict[str, Any]:
    doing = getattr(_steps, "doing", None)
    seconds = 0.0 if doing is None else time.monotonic() - doing.began
    what = None if doing is None else doing.what
    step = getattr(_steps, "number", 0)
    return {"step": step, "what": what, "seconds": seconds, "at": position(sys._current_frames().get(main))}


def position(frame: FrameType | None) -> str:
    """Return the innermost line of the program itself, such as ``train.py:32 in job``; empty if there is none."""
    while frame is not None:
        code = frame.f_code
        if is_program(code.co_filename):
            return f"{os.path.basename(code.co_filename)}:{frame.f_lineno} in {code.co_name}"
        frame = frame.f_back
    return ""


def is_program(file: str) -> bool:
    """Return True for a file that is neither part of Python, of an installed package, nor of devshim."""
    library = file.startswith(("<frozen", _OURS + os.sep)) or f"{os.sep}site-packages{os.sep}" in file
    return not library and not file.startswith(tuple(each + os.sep for each in _LIBRARIES))


def _end() -> None:
    """Kill this process and those that it started, if they are a process group of their own."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(70)
