"""A job whose ranks sum or save until one of them fails in a given way at a given moment, and what its error must say.

The ranks of the job import this file. Each has a child process, which must end with it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import devshim as ds

__all__ = ["CAUSES", "HERE", "LATEST", "LONG", "MOMENTS", "busy", "check", "job", "left"]

MOMENTS = ("start", "between", "sum", "save")
LATEST = 7
"""Seconds from the failure to the error, in addition to the time that a collective may wait."""
BUSY = 4
"""With more processes than so many for each processor, everything takes longer."""
HERE = Path(__file__).name
LONG = 100
CAUSES: dict[str, tuple[type[ds.WorldError], str]] = {
    "kill": (ds.RankFailedError, f"{{who}} was killed by SIGKILL, and was last at {HERE}:"),
    "segfault": (ds.RankFailedError, f"{{who}} was killed by SIGSEGV, at {HERE}:"),
    "exit": (ds.RankFailedError, f"{{who}} ended with exit status 3, and was last at {HERE}:"),
    "exception": (ds.RankFailedError, f"{{who}} ended with exit status 1: ValueError: a bad batch, at {HERE}:"),
    "stop": (ds.RankLateError, f"{{who}} does not answer, and was last at {HERE}:"),
    "sleep": (ds.RankLateError, f"at {HERE}:"),
    "return": (ds.RankLateError, "{who} has returned"),
    "disagree": (ds.RanksDisagreeError, f"rank {{rank}} at {HERE}:"),
}
"""The way in which a rank fails -> the class of the error, and words in it."""


def fail(how: str, folder: str) -> None:
    """Fail in the way that is asked for, and note when."""
    Path(folder, "failed").touch()
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "segfault":
        ctypes.string_at(0)
    if how == "exit":
        os._exit(3)
    if how == "exception":
        msg = "a bad batch"
        raise ValueError(msg)
    if how == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(0.1)  # in another thread, it takes a moment until the process is stopped
        Path(folder, "continued").touch()
    if how in ("sleep", "wait"):
        time.sleep(LONG)
    if how == "return":
        raise SystemExit(0)
    if how == "disagree":
        ds.world().all_reduce_(_ones(ds.world()), "max")


def fail_soon(how: str, folder: str) -> None:
    """Fail in half a second, wherever the program is then: in another thread, or interrupting the main one."""
    if how == "disagree":  # another call while the others are in theirs
        time.sleep(0.5)
        fail(how, folder)
    if how == "wait":  # somebody else ends the rank
        threading.Timer(0.5, Path(folder, "failed").touch).start()
        return
    if how == "return":  # an exit with status 0, such as by a library that gives up
        threading.Timer(0.5, os._exit, (0,)).start()
        Path(folder, "failed").touch()
        return
    if how in ("kill", "segfault", "exit", "stop"):
        threading.Timer(0.5, fail, (how, folder)).start()
        return
    signal.signal(signal.SIGALRM, lambda *_: fail(how, folder))
    signal.setitimer(signal.ITIMER_REAL, 0.5)


def meet(folder: str, name: str) -> None:
    """Wait until all ranks are here, without a collective: the import of a framework may take long."""
    Path(folder, f"{name}-{os.environ['RANK']}").touch()
    until = time.monotonic() + LONG
    while len(list(Path(folder).glob(f"{name}-*"))) < int(os.environ["WORLD_SIZE"]) and time.monotonic() < until:
        time.sleep(0.02)


def job(framework: str, how: str, when: str, folder: str, bad: int) -> None:
    """Sum or save until the job ends; one rank fails."""
    rank = int(os.environ["RANK"])
    Path(folder, f"process-{rank}-{os.getpid()}").touch()
    subprocess.Popen(["sleep", "1000"])
    ds.use(framework)
    ds.framework()  # no operator: some engines must start before the first one
    meet(folder, "imported")
    if rank == bad and when == "start":
        fail(how, folder)
    world = ds.world()
    for _ in range(3):
        world.all_reduce_(_ones(world))
    if rank == bad and when == "between":
        fail(how, folder)
    state, path = {"x": ds.Rows(ds.ones((1000, 100)))}, os.path.join(folder, "saved")
    if when == "save":
        ds.save(state, path, world=world)  # a whole one, before the rank fails
    if rank == bad:
        fail_soon(how, folder)
    elif when == "sum" and rank == (bad + 1) % world.size:
        time.sleep(1.5)  # the others are in the sum
    while when == "save":
        ds.save(state, path, world=world)
    while True:
        world.all_reduce_(_ones(world))


def _ones(world: Any) -> list[Any]:
    """Return a tensor for each device of this rank."""
    return [ds.ones(10, device=device) for device in world.devices]


def check(error: Any, how: str, rank: int, host: str, ranks: int) -> None:
    """Fail unless an error of a job has the class of the failure, and names the rank, its host and its line.

    Of two ranks in one call, one of which sleeps in a signal handler, both are named: either may be at fault.
    """
    kind, words = CAUSES[how]
    who = f"rank {rank} on {host}"
    assert type(error) is kind, error
    said = [words.format(who=who, rank=rank)]
    if how == "return":  # on JAX, its process waits for its peers
        said.append(f"the program of {who} has ended, but its process has not")
        said.append(f"{who} has ended with exit status 0")  # by `os._exit`
    assert any(each in error.problem for each in said), error
    assert who in error.problem, error
    if kind is ds.RankLateError:
        assert error.late == (rank,) or (how == "sleep" and ranks == 2 and error.late == (0, 1)), error
    elif kind is ds.RankFailedError:
        assert (error.rank, error.host) == (rank, host)


def busy() -> float:
    """Return how many times longer everything may take now than on a machine with little to do."""
    return max(1.0, os.getloadavg()[0] / (BUSY * (os.cpu_count() or 1)))


def left(folder: Path) -> list[int]:
    """Return the ranks' processes that still exist."""
    processes = [int(path.name.rpartition("-")[2]) for path in folder.glob("process-*")]
    return [process for process in processes if Path(f"/proc/{process}").exists()]
