"""Processes of `devshim run` answer, while they work, how much memory they use on simulated GPUs.

Requirements of this module:

* It costs an operator nothing: a thread waits for questions at a Unix socket, and counts only when one comes. The
  thread starts when the process loads its first framework, and only in programs that `devshim run` started.
* Only the same user can ask: the sockets are in a folder that is closed to others.
* A process that ended without removing its socket is not listed: nothing answers there. Its socket is then removed.
* A process that was forked does not answer, because on real GPUs it could not use CUDA.
"""

from __future__ import annotations

import _socket  # the module `socket` imports several others, and this one starts with every program
import atexit
import os
from _thread import start_new_thread
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from devshim.registry import registry
from devshim.registry.private_paths import is_private
from devshim.simulation.usage import Process, of_this_process

__all__ = ["RUN", "answer_questions", "processes", "require_folder", "run_of_this_process"]

RUN = "_DEVSHIM_RUN"
"""The environment variable with the number of a `devshim run`, that of its first process, and with its Python."""
_WAIT = 2.0
"""Seconds to wait for an answer: a long operator that does not release Python's lock may delay it."""
_LONGEST = 100
"""Characters: the path of a Unix socket may not be much longer."""


class _Server:
    """The socket of this process; None before the first framework is loaded."""

    socket: Any = None


def run_of_this_process() -> str | None:
    """Return the number of the `devshim run` that started this process, or None."""
    number = os.environ.get(RUN, "").partition(":")[0]
    return number if number.isdecimal() else None


def answer_questions() -> None:
    """Let this process answer, from when it loads its first framework."""
    if run_of_this_process() is not None and hasattr(_socket, "AF_UNIX"):
        registry.on_load(lambda backend: _start())


def _folder() -> str | None:
    """Return the folder of the sockets, or None if this user cannot have one."""
    for path in _folders():
        with suppress(OSError):
            os.makedirs(path, mode=0o700, exist_ok=True)
            if is_private(path):
                return path
    return None


def _folders() -> list[str]:
    paths = [os.path.join(base, f"devshim-{os.getuid()}") for base in (os.environ.get("TMPDIR") or "/tmp", "/tmp")]
    return [path for path in paths if len(path) <= _LONGEST - 20]


def require_folder() -> None:
    """Raise an error if processes cannot answer, because there is no folder that only this user can read.

    Raises:
        SimulationError: The folder belongs to another user, others may read it, or it cannot be made.
    """
    if hasattr(_socket, "AF_UNIX") and _folder() is None:
        from devshim.errors import SimulationError

        path = _folders()[-1]
        msg = f"programs answer in the folder {path}, which is not private: others may own or read it"
        raise SimulationError(msg, f"chmod 700 {path}, or remove it")


def _start() -> None:
    """Open the socket, and start the thread that answers; without a folder for it, the process is not listed."""
    folder, run = _folder(), run_of_this_process()
    if _Server.socket is not None or folder is None or run is None:
        return
    path = os.path.join(folder, f"{run}-{os.getpid()}")
    try:
        if os.path.exists(path):  # of an earlier process with the same number
            os.unlink(path)
        server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        server.bind(path)
        server.listen(8)
    except OSError:
        return
    _Server.socket = server
    atexit.register(_remove, path, os.getpid())
    os.register_at_fork(after_in_child=_close)
    start_new_thread(_serve, (server,))


def _serve(server: Any) -> None:
    from json import dumps

    while True:
        try:
            number = server._accept()[0]
        except OSError:
            return
        try:
            os.write(number, dumps(of_this_process().as_json()).encode())
        except Exception:  # the process that asked has ended, or a framework is in the middle of its start
            pass
        finally:
            os.close(number)


def _close() -> None:
    server, _Server.socket = _Server.socket, None
    if server is not None:
        server.close()


def _remove(path: str, pid: int) -> None:
    if os.getpid() == pid:
        with suppress(OSError):
            os.unlink(path)


def processes(run: str | None = None, *, besides: int = 0) -> Iterator[tuple[str, Process | int]]:
    """Ask every process that `devshim run` started, or those of one run, how much memory it uses.

    Args:
        run: The number of a run; None for all.
        besides: The number of a process that is not asked.

    Yields:
        The number of the run, with the process; only the number if it did not answer in time.
    """
    folder = _folder() if hasattr(_socket, "AF_UNIX") else None
    for name in sorted(os.listdir(folder)) if folder is not None else ():
        of_run, _, number = name.partition("-")
        if not number.isdecimal() or run not in (None, of_run) or int(number) == besides:
            continue
        found = _ask(os.path.join(str(folder), name), int(number))
        if found is not None:
            yield of_run, found


def _ask(path: str, pid: int) -> Process | int | None:
    """Return a process's answer, its number if it is late, or None if it has ended."""
    from json import loads

    client = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    client.settimeout(_WAIT)
    text = b""
    try:
        client.connect(path)
        while part := client.recv(1 << 16):
            text += part
        answer = loads(text)
        return Process(**{**answer, "used": tuple(answer["used"])})
    except TimeoutError:
        return pid
    except (OSError, ValueError):
        from devshim.registry.processes import is_alive  # rarely needed, and its imports take time

        if not is_alive(pid):
            _remove(path, os.getpid())
        return None
    finally:
        client.close()
