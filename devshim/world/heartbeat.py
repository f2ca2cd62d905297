"""The heartbeat of a rank: a thread that reports the program's current collective and line to the agent.

It starts before the program does. It imports only the standard library, so that it also reports while a framework is
being imported. It writes when something has changed, and every half second, so that the agent notices a process that is
stopped. If the agent has ended, it ends the rank: a rank never outlives its job.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import sys
import sysconfig
import threading
import time
from contextlib import suppress
from functools import cache, wraps
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["INTERVAL", "begin", "is_program", "note_exit", "position", "position_of"]

INTERVAL = 0.5
"""Seconds between two lines, if nothing changes."""
_LOOK, _FIRST_LOOK = 0.1, 0.02
"""Seconds between two checks of the program; the second number applies until the program has started."""

_VARIABLE = "DEVSHIM_HEARTBEAT"
_PACKAGES = ("devshim", "devshim_backends")
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_INSTALLED = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))
_steps: Any = None
_exit_at = ""
"""The line of the program that has ended it: such as the last call of `sys.exit`, which prints no traceback."""
_running: int | None = None


def begin(steps: Any = None) -> None:
    """Start the thread in a process that an agent started; with steps, report their collectives from now on.

    Args:
        steps: An object with the attributes ``number``, and ``doing``: None, or ``number``, ``what``, ``began``; and
            maybe ``engine``, as in `devshim.world.steps.Steps`.
    """
    global _steps, _running
    _steps = steps if steps is not None else _steps
    descriptor, _, process = os.environ.get(_VARIABLE, "").partition(":")
    if not process or int(process) != os.getpid() or _running == os.getpid():
        return  # no agent, a child process of a rank, or a second call
    _running = os.getpid()
    pipe = _Pipe(int(descriptor))
    _watch_exits()
    atexit.register(_end_well, pipe, os.getpid())
    threading.Thread(target=_beat, args=(pipe,), name="devshim-heartbeat", daemon=True).start()


class _Pipe:
    """The pipe to the agent. A program may close its descriptor, as it does before it goes on as a daemon."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._descriptor, self._file = descriptor, os.fstat(descriptor)

    @property
    def is_open(self) -> bool:
        """False if the program has closed the descriptor, whose number may now be that of its own file."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), self._file)
        except OSError:
            return False

    def write(self, report: dict[str, Any]) -> None:
        """Write a line."""
        os.write(self._descriptor, (json.dumps(report) + "\n").encode())


def note_exit(at: str) -> None:
    """Note the line that has ended the program; an empty text changes nothing."""
    global _exit_at
    _exit_at = at or _exit_at


def _watch_exits() -> None:
    """Note the line of each call of `sys.exit` in the main thread."""
    leave = sys.exit

    @wraps(leave)
    def exit(*status: Any) -> NoReturn:
        if threading.current_thread() is threading.main_thread():
            note_exit(position(sys._getframe(1)))
        leave(*status)

    sys.exit = exit


def _beat(pipe: _Pipe) -> None:
    main = threading.main_thread().ident or 0
    sent: dict[str, Any] = {}
    until = 0.0
    while pipe.is_open:
        report = _report()
        report["at"] = position(sys._current_frames().get(main)) or sent.get("at", "")  # also while the program ends
        if {**report, "seconds": 0} != {**sent, "seconds": 0} or time.monotonic() >= until:
            sent, until = report, time.monotonic() + INTERVAL
            try:
                pipe.write(report)
            except OSError:
                _end()
        time.sleep(_LOOK if report["at"] else _FIRST_LOOK)


def _end_well(pipe: _Pipe, process: int) -> None:
    """Write the last step of a program that ends, and the line that has ended it if that is known."""
    if process == os.getpid() and pipe.is_open:
        report = {**_report(), "ends": True, "raised": _last_error(), "exit_at": _exit_at}
        with suppress(OSError):
            pipe.write(report)


def _report() -> dict[str, Any]:
    doing = getattr(_steps, "doing", None)
    seconds = 0.0 if doing is None else time.monotonic() - doing.began
    what = None if doing is None else doing.what
    step = getattr(_steps, "number", 0) if doing is None else doing.number
    ends = not threading.main_thread().is_alive()  # other threads and registered exit functions may still run
    raised = _last_error() if ends else ""
    engine = getattr(_steps, "engine", "")
    return {"step": step, "what": what, "engine": engine, "seconds": seconds, "ends": ends, "raised": raised}


def _last_error() -> str:
    """Return the type of the last exception that Python has stored, or an empty text.

    Python stores one that ends a program, but not a `SystemExit`; pytest also stores those of tests that fail.
    """
    error = getattr(sys, "last_value", None)
    return "" if error is None else type(error).__name__


def position(frame: FrameType | None) -> str:
    """Return the innermost line of the program itself, such as ``train.py:32 in job``; empty if there is none."""
    while frame is not None:
        code = frame.f_code
        if is_program(code.co_filename) and not (code.co_filename.startswith("<") and _is_generated(frame)):
            return f"{os.path.basename(code.co_filename)}:{frame.f_lineno} in {code.co_name}"
        frame = frame.f_back
    return ""


def position_of(error: BaseException) -> str:
    """Return the innermost line of the program itself in the traceback of an error; empty if there is none."""
    found, each = "", error.__traceback__
    while each is not None:
        code = each.tb_frame.f_code
        if is_program(code.co_filename):
            found = f"{os.path.basename(code.co_filename)}:{each.tb_lineno} in {code.co_name}"
        each = each.tb_next
    return found


def _is_generated(frame: FrameType) -> bool:
    """Return True for code without a file that a library has made, such as the ``__init__`` of a dataclass.

    A program has no file if it is given by ``python -c`` or typed into a notebook.
    """
    return frame.f_globals.get("__name__") != "__main__" or "__file__" in frame.f_globals


def is_program(file: str) -> bool:
    """Return True for a file that is not part of Python, an installed package, devshim or an adapter."""
    library = file.startswith("<frozen") or any(name in file for name in _INSTALLED)
    return not library and not file.startswith((*(each + os.sep for each in _LIBRARIES), *_own_folders()))


@cache
def _own_folders() -> tuple[str, ...]:
    """Return the folders of devshim and its adapters, which may be in a checkout; this imports neither.

    Also return the folders of other packages that are not in Python's own folders, as after ``pip install --target``.
    """
    found = [find_spec(name) for name in _PACKAGES]
    folders = [folder for spec in found if spec is not None for folder in spec.submodule_search_locations or ()]
    program = {os.path.dirname(getattr(sys.modules["__main__"], "__file__", None) or "")}
    with suppress(OSError):  # the working directory may be gone
        program.add(os.getcwd())
    folders += [folder for folder in sys.path if folder and folder not in program and _has_packages(folder)]
    return tuple(os.path.abspath(folder) + os.sep for folder in folders)


def _has_packages(folder: str) -> bool:
    """Return True if an installer has put packages into a folder."""
    try:
        return any(name.endswith(".dist-info") for name in os.listdir(folder))
    except OSError:  # no folder, or one that this user may not read
        return False


def _end() -> None:
    """Kill this process and those that it started, if they form a separate process group."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(70)
