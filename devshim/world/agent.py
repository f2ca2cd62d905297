"""The agent of a host: it starts the host's ranks, reads their heartbeats and output, and ends them.

It is a Ray actor, one for each host; the ranks are its child processes, each a plain ``python`` with the program in its
main thread. The exit status of a rank is therefore known, and a rank that is stuck in C++ cannot block its agent. Each
rank leads a process group that ends with it, so that processes that it has started do not outlive it. An agent speaks
to the launcher only when there is news: a rank is late, does not answer or has ended, or printed something. If the
launcher shows a table, the agent also reports the progress of its ranks, every few seconds.
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

from devshim.world.causes import exit_status, has_raised
from devshim.world.cluster import tied
from devshim.world.launchers import without_launchers
from devshim.world.news import News
from devshim.world.output import lines
from devshim.world.rank_process import RankProcess
from devshim.world.reports import WAITS
from devshim.world.step_store import StepStore
from devshim.world.watchdog import end_groups

__all__ = ["Agent", "with_concurrency_groups"]

_GRACE = 0.5
_ENDING = 4.0
"""Seconds that the process of a rank may take to end after an exception; then it is reported."""
_HELD = 1.0
"""Seconds for which a process that a rank has started may write to the output of the rank after its end."""
_WATCHDOG = Path(__file__).with_name("watchdog.py")


class Agent:
    """The actor; its concurrency groups let it answer while a rank waits for a peer's items.

    Args:
        address: The address of this host.
        timeout: How many seconds a collective may wait.
        progress: Seconds between two progress reports of the ranks; None for no reports.
    """

    def __init__(self, address: str, timeout: float, progress: float | None = None) -> None:
        self._address, self._timeout, self._progress = address, timeout, progress
        self._ranks: dict[int, RankProcess] = {}
        self._news = News()
        ray = os.environ.get("RAY_TMPDIR", "")  # removed with Ray, even if this process is killed
        self._folder = Path(tempfile.mkdtemp(prefix="devshim-ranks-", dir=ray if os.path.isdir(ray) else None))
        self._store = StepStore()
        self._watchdog = _watchdog()
        threading.Thread(target=self._look, daemon=True).start()

    def prepare(self) -> tuple[str, int]:
        """Return the address of this host, and a free port on it."""
        with socket.socket() as found:
            found.bind((self._address, 0))
            return self._address, found.getsockname()[1]

    def start(
        self,
        ranks: dict[int, dict[str, str]],
        shared: dict[str, str],
        command: list[str] | None,
        code: bytes,
        environment: dict[str, str] | None,
        folder: str,
    ) -> None:
        """Start ranks, except those that an earlier call has started, whose answer Ray has lost.

        Args:
            ranks: Each rank's own environment variables.
            shared: The environment variables that all ranks share.
            command: The program, or None for the pickled function in ``code``.
            code: That function.
            environment: The environment of the caller on the launcher's own machine; None for this process's.
            folder: The working directory, if it exists here.
        """
        base = {**without_launchers(os.environ if environment is None else environment), **shared}
        for rank, own in ranks.items():
            if rank in self._ranks:
                continue
            started = threading.Event()
            arguments = (rank, {**base, **own}, command, code, folder, started)
            threading.Thread(target=self._keep, args=arguments, daemon=True).start()
            started.wait(60)

    def _keep(
        self,
        rank: int,
        environment: dict[str, str],
        command: list[str] | None,
        code: bytes,
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
        environment.update(DEVSHIM_HEARTBEAT=str(writing), PYTHONFAULTHANDLER="1", PYTHONUNBUFFERED="1")
        process = subprocess.Popen(
            tied(command, signal.SIGKILL),
            env=environment,
            cwd=folder if os.path.isdir(folder) else None,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[writing],
            start_new_session=True,
        )
        os.close(writing)
        self._watch("+", process)
        each = self._ranks[rank] = RankProcess(process, home)
        readers = [threading.Thread(target=self._read_heartbeats, args=(each, reading), daemon=True)]
        for name in ("stdout", "stderr"):
            stream = os.dup(getattr(process, name).fileno())
            getattr(process, name).close()
            readers.append(threading.Thread(target=self._read, args=(rank, name, stream), daemon=True))
        for reader in readers:
            reader.start()
        started.set()
        status = process.wait()
        if status != 0:
            end_groups([process.pid])  # processes that it has started
        until = time.monotonic() + _HELD
        for reader in readers:
            while reader.is_alive() and self._news.is_full:  # the launcher has not yet taken what was printed
                reader.join(0.1)
                until = time.monotonic() + _HELD
            reader.join(max(until - time.monotonic(), 0))  # processes that the rank has started may hold the pipe open
        end_groups([process.pid])
        each.ended.set()
        for reader in readers[1:]:
            reader.join(_HELD)  # it reads what was written, also if a process of another group holds the pipe open
        self._watch("-", process)
        at, exit_at = str(each.heartbeat.get("at", "")), str(each.heartbeat.get("exit_at", ""))
        step, is_over = int(each.heartbeat.get("step", 0)), bool(each.heartbeat.get("ends"))
        result = self._result(each, status)
        self._news.add("end", rank, exit_status(status, each.tail), each.tail, at, result, step, is_over, exit_at)

    def _watch(self, sign: str, process: subprocess.Popen[bytes]) -> None:
        """Name a process group that must end if this process is killed, or one that has ended."""
        with suppress(OSError, ValueError):  # it was killed, or the job has ended
            self._watchdog.write(f"{sign}{process.pid}\n".encode())
            self._watchdog.flush()

    def _result(self, rank: RankProcess, status: int) -> bytes | None:
        path = rank.folder / "out"
        return path.read_bytes() if status == 0 and path.exists() else None

    def _read_heartbeats(self, rank: RankProcess, descriptor: int) -> None:
        with os.fdopen(descriptor) as lines:
            for line in lines:
                with suppress(ValueError):
                    rank.heartbeat = {**rank.heartbeat, **json.loads(line)}  # the last one has no line of the program
                    rank.last_heartbeat = time.monotonic()
        rank.is_unwatched = True  # its program has closed the pipe, or it ends
        rank.heartbeat = {**rank.heartbeat, "what": None}

    def _read(self, rank: int, name: str, stream: int) -> None:
        each = self._ranks[rank]
        for line in lines(stream, each.ended):
            if name == "stderr":
                each.output_end.add(line)
            self._news.add_line(rank, name, line)

    def _look(self) -> None:
        """Report once each rank that has waited too long or is silent in a collective; report changes of state.

        Also report once a rank whose process goes on after an exception: as rank 0 of JAX, it may wait for its peers,
        which wait for it.
        """
        shown = time.monotonic()
        while True:
            time.sleep(_GRACE)
            is_due = self._progress is not None and time.monotonic() - shown >= self._progress
            shown = time.monotonic() if is_due else shown
            for rank, each in list(self._ranks.items()):
                self._send_state(rank, each, is_due)
                self._send_raised(rank, each)
                self._send_call(rank, each)
                if each.process.poll() is not None or each.heartbeat.get("what") is None:
                    each.reported_late = False
                elif each.waits > self._timeout and not each.reported_late and not self._news.is_full:
                    each.reported_late = True
                    self._news.add("late", rank)

    def _send_state(self, rank: int, each: RankProcess, is_due: bool) -> None:
        """Report a rank whose state has changed, or its step if a report is due."""
        now = each.state, each.heartbeat.get("step", 0), each.heartbeat.get("what"), each.heartbeat.get("at", "")
        if each.process.poll() is None and (now[:1] != each.reported[:1] or (is_due and now != each.reported)):
            each.reported = now
            self._news.add("state", rank, *now)

    def _send_call(self, rank: int, each: RankProcess) -> None:
        """Report once the collective in which a rank has waited some seconds: another may never make this call."""
        call = each.heartbeat.get("step", 0), each.heartbeat.get("what")
        if call[1] is not None and call != each.reported_call and each.waits > WAITS and each.process.poll() is None:
            each.reported_call = call
            self._news.add("waits", rank, each.report())

    def _send_raised(self, rank: int, each: RankProcess) -> None:
        """Report a rank whose program has ended with an exception some seconds ago, and whose process has not."""
        if each.reported_raised or each.process.poll() is not None:
            return
        if not has_raised(each.heartbeat.get("raised", ""), each.tail):
            return
        each.raised_since = each.raised_since or time.monotonic()
        if time.monotonic() - each.raised_since >= _ENDING:
            each.reported_raised = True
            at, exit_at = str(each.heartbeat.get("at", "")), str(each.heartbeat.get("exit_at", ""))
            self._news.add("raised", rank, each.tail, at, exit_at)

    def news(self, patience: float, received: int) -> list[tuple[Any, ...]]:
        """Return what happened since the last answer, as `News.take` does."""
        return self._news.take(patience, received)

    def where(self) -> dict[int, dict[str, Any]]:
        """Return the last report of each rank that runs."""
        return {rank: each.report() for rank, each in self._ranks.items() if each.process.poll() is None}

    def stop(self) -> dict[int, int]:
        """End every rank and the processes that it started; remove the folder.

        Return the step of each rank before that: one that handles SIGTERM may go on for a moment.
        """
        steps = {rank: int(each.heartbeat.get("step", 0)) for rank, each in self._ranks.items()}
        running = [each.process for each in self._ranks.values()]
        for number in (signal.SIGTERM, signal.SIGCONT):
            for process in running:
                _signal(process, number)
        until = time.monotonic() + _GRACE
        while time.monotonic() < until and any(process.poll() is None for process in running):
            time.sleep(0.02)
        end_groups(process.pid for process in running)
        for process in running:
            with suppress(subprocess.TimeoutExpired):
                process.wait(5)
        with suppress(OSError):
            self._watchdog.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        return steps

    def put(self, rank: int, number: int, what: str, items: dict[Any, Any]) -> None:
        """Put a rank's items of a collective into the store."""
        self._store.put(rank, number, what, items)

    def take(self, rank: int, number: int, key: Any, what: str, timeout: float) -> Any:
        """Return a rank's item of a collective, once it is there."""
        return self._store.take(rank, number, key, what, timeout)


def _watchdog() -> IO[bytes]:
    """Start the watchdog of this process, and return its standard input."""
    started = subprocess.Popen(
        [sys.executable, "-I", "-S", str(_WATCHDOG)], stdin=subprocess.PIPE, start_new_session=True
    )
    started.wait()  # it goes on in a process that it has started
    assert started.stdin is not None
    return started.stdin


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to the process group that a rank began: the rank itself may already have ended."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def with_concurrency_groups() -> type:
    """Return `Agent` with its methods in Ray's concurrency groups."""
    import ray

    names = {"put": "peers", "take": "peers", "news": "watch", "where": "watch", "stop": "watch"}
    methods = {name: ray.method(concurrency_group=group)(getattr(Agent, name)) for name, group in names.items()}
    return type("Agent", (Agent,), {**methods, "__module__": Agent.__module__})
