"""`devshim launch`: run a program in several processes, and print at the end what happened."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from devshim.cli._launch_view import JobView
from devshim.errors import WorldError
from devshim.world import cluster, launcher

__all__ = ["main"]

_STARTUP = Path(__file__).parent / "_startup"
_PROGRESS = 0.5
"""Seconds between two reports of how far a rank is, for the table."""
_ENDING = {name: number for name in ("SIGINT", "SIGTERM", "SIGHUP") if (number := getattr(signal, name, None))}
_OUTPUT = (errno.EPIPE, errno.EIO, errno.ENOSPC)
"""The errors of writing: a pipe has no reader, as in `devshim launch ... | head`, a terminal is closed, a disk is
full."""
_NAMES = {"SIGINT": "Ctrl-C", "SIGHUP": "a closed terminal"}


class _Ended(BaseException):
    """A signal that ends the job; not an `Exception`, as `KeyboardInterrupt`."""


def main(program: Sequence[str], **options: Any) -> int:
    """Run a program, show how far it is, print its output with the rank and the host, and return the exit code."""
    cluster.require_ray()
    if isinstance(sys.stdout, io.TextIOWrapper):  # its encoding may lack characters that a rank or an error has
        sys.stdout.reconfigure(errors="replace")
    job = launcher.job_of(**options)
    path = [str(_STARTUP), *filter(None, [job.environment.get("PYTHONPATH")])]
    environment = {**job.environment, "PYTHONPATH": ":".join(path)}
    job = replace(job, command=[sys.executable, *program], environment=environment)
    view = JobView()
    try:
        with _signals(), view.shown() as is_live:
            launcher.launch_job(replace(job, progress=_PROGRESS if is_live else None), view.receive)
    except WorldError as error:
        view.fail(error.problem, error.hint)
        return 1
    except _Ended as ended:
        with suppress(OSError):  # the terminal may be closed
            view.interrupt(_NAMES.get(str(ended), str(ended)))
        return 128 + int(_ENDING[str(ended)])
    except OSError as error:
        return _without_output(error)
    view.finish()
    return 0


def _without_output(error: OSError) -> int:
    """Return the exit code of a job that ended because its output could not be written; raise other errors."""
    if error.errno not in _OUTPUT:
        raise error
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes it at its end
    if error.errno == errno.ENOSPC:
        msg = f"the output cannot be written: {error.strerror}; all ranks have been ended"
        raise WorldError(msg, "free some space, or write to another disk") from error
    with suppress(OSError):
        print("devshim: the output is closed; all ranks have been ended", file=sys.stderr)
    return 128 + (signal.SIGPIPE if error.errno == errno.EPIPE else signal.SIGHUP)


@contextmanager
def _signals() -> Iterator[None]:
    """Let each signal that asks for an end raise `_Ended` in a block, so that the ranks are ended first."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        for each in _ENDING.values():  # the first one is enough: Ctrl-C again must not leave ranks behind
            signal.signal(each, signal.SIG_IGN)
        raise _Ended(signal.Signals(number).name)

    before = {each: signal.signal(each, end) for each in _ENDING.values() if signal.getsignal(each) != signal.SIG_IGN}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
