"""The agent of a host: it starts the host's ranks, reads their pulses and output, sees how they end, and kills them.

It is a Ray actor, one for each host; the ranks are its child processes, each a plain ``python`` with the program in its
main thread. So the exit status of a rank is known, and a rank that is stuck in C++ cannot block its agent. An agent
speaks to the launcher only when there is news: a rank is late or has ended, or printed something.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from devshim.world.shelf import Shelf

__all__ = ["Agent"]

TAIL = 6000
"""How many characters of a rank's output are kept for its error."""
_GRACE = 0.5
_STARTING = Path(__file__).with_name("starting.py")


class _Rank:
    """A rank's process, and what it last said."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self.process, self.folder = process, folder
        self.tail, self.pulse = "", {}  # type: str, dict[str, Any]
        self.heard = time.monotonic()
        self.reported_late = False

    def report(self) -> dict[str, Any]:
        """Return its last pulse, and the seconds since then."""
        return {**self.pulse, "silent": time.monotonic() - self.heard}


class Agent:
    """The actor; its concurrency groups let it answer while a rank waits for a peer's items."""

    def __init__(self, address: str, timeout: float) -> None:
        self._address, self._timeout = address, timeout
        self._ranks: dict[int, _Rank] = {}
        self._news: list[tuple[Any, ...]] = []
        self._changed = threading.Condition()
        self._folder = Path(tempfile.mkdtemp(prefix="devshim-ranks-"))
        self._shelf = Shelf()
        threading.Thread(target=self._look, daemon=True).start()

    def prepare(self) -> tuple[str, int]:
        """Return the address of this host, and a port that is free on it."""
        with socket.socket() as found:
            found.bind((self._address, 0))
            return self._address, found.getsockname()[1]

    def start(
        self,
        ranks: dict[int, dict[str, str]],
        command: list[str] | None,
        code: bytes,
        shared: dict[str, str] | None,
        folder: str,
    ) -> None:
        """Start ranks.

        Args:
            ranks: Each rank's own environment variables.
            command: The program, or None for the pickled function in ``code``.
            code: That function.
            shared: The whole environment on the launcher's own machine; None for this process's.
            folder: The working directory, if it exists here.
        """
        for rank, own in ranks.items():
            started = threading.Event()
            arguments = (rank, own, command, code, shared, folder, started)
            threading.Thread(target=self._keep, args=arguments, daemon=True).start()
            started.wait(60)

    def _keep(
        self,
        rank: int,
        own: dict[str, str],
        command: list[str] | None,
        code: bytes,
        shared: dict[str, str] | None,
        folder: str,
        started: threading.Event,
    ) -> None:
        """Start a rank and wait for its end, in one thread: the kernel kills the rank if that thread ends."""
        home = self._folder / str(rank)
        home.mkdir(mode=0o700)
        (home / "in").write_bytes(code)
        if command is None:
            command = [sys.executable, "-m", "devshim.world.program", str(home)]
        reading, writing = os.pipe()
        environment = dict(os.environ if shared is None else shared)
        environment.update(own, DEVSHIM_PULSE=str(writing), PYTHONFAULTHANDLER="1", PYTHONUNBUFFERED="1")
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_STARTING), str(os.getpid()), *command],
            env=environment,
            cwd=folder if os.path.isdir(folder) else None,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[writing],
            start_new_session=True,
        )
        os.close(writing)
        each = self._ranks[rank] = _Rank(process, home)
        readers = [threading.Thread(target=self._hear, args=(each, reading), daemon=True)]
        for name in ("stdout", "stderr"):
            readers.append(threading.Thread(target=self._read, args=(rank, name, getattr(process, name)), daemon=True))
        for reader in readers:
            reader.start()
        started.set()
        status = process.wait()
        for reader in readers[1:]:
            reader.join(2)  # a child process of the rank may hold the pipe open
        self._tell("end", rank, status, each.tail, str(each.pulse.get("at", "")), self._result(each, status))

    def _result(self, rank: _Rank, status: int) -> bytes | None:
        path = rank.folder / "out"
        return path.read_bytes() if status == 0 and path.exists() else None

    def _hear(self, rank: _Rank, descriptor: int) -> None:
        with os.fdopen(descriptor) as lines:
            for line in lines:
                with suppress(ValueError):
                    rank.pulse = json.loads(line)
                    rank.heard = time.monotonic()

    def _read(self, rank: int, name: str, stream: IO[bytes]) -> None:
        each = self._ranks[rank]
        for line in stream:
            text = line.decode(errors="replace")
            if name == "stderr":
                each.tail = (each.tail + text)[-TAIL:]
            self._tell("output", rank, name, text)

    def _tell(self, *news: Any) -> None:
        with self._changed:
            self._news.append(news)
            self._changed.notify_all()

    def _look(self) -> None:
        """Report each rank once that waits longer than it may, or that is silent in a collective."""
        while True:
            time.sleep(_GRACE)
            for rank, each in list(self._ranks.items()):
                waits = each.pulse.get("seconds", 0.0) + (time.monotonic() - each.heard)
                if each.process.poll() is not None or each.pulse.get("what") is None:
                    each.reported_late = False
                elif waits > self._timeout and not each.reported_late:
                    each.reported_late = True
                    self._tell("late", rank)

    def news(self, patience: float) -> list[tuple[Any, ...]]:
        """Return what happened since the last call; wait until something has, but not longer than that."""
        with self._changed:
            self._changed.wait_for(lambda: self._news, patience)
            news, self._news = self._news, []
            return news

    def where(self) -> dict[int, dict[str, Any]]:
        """Return the last report of each rank that runs."""
        return {rank: each.report() for rank, each in self._ranks.items() if each.process.poll() is None}

    def stop(self) -> None:
        """End every rank and the processes that it started; remove the folder."""
        running = [each.process for each in self._ranks.values()]
        for number in (signal.SIGTERM, signal.SIGCONT):
            for process in running:
                _signal(process, number)
        until = time.monotonic() + _GRACE
        while time.monotonic() < until and any(process.poll() is None for process in running):
            time.sleep(0.02)
        for process in running:
            _signal(process, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                process.wait(5)
        shutil.rmtree(self._folder, ignore_errors=True)

    def put(self, rank: int, number: int, what: str, items: dict[Any, Any]) -> None:
        """Put a rank's items of a collective on the shelf."""
        self._shelf.put(rank, number, what, items)

    def take(self, rank: int, number: int, key: Any, what: str, timeout: float) -> Any:
        """Return a rank's item of a collective, once it is there."""
        return self._shelf.take(rank, number, key, what, timeout)


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to the process group that a rank began: the rank itself may already have ended."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
