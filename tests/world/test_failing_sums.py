"""Tests of real sums in which a rank of three fails: at the start, while others wait for it, in a sum, and in a save.

The job's one error names the rank, the host and the cause, within the time-out and seven seconds; no process is left.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import devshim as ds

TIMEOUT = 4.0
RANKS = 3


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
    if how == "sleep":
        time.sleep(100)


def job(framework: str, how: str, when: str, folder: str) -> None:
    """Sum for ever; rank 2 fails."""
    rank = int(os.environ["RANK"])
    Path(folder, f"{rank}-{os.getpid()}").touch()
    is_bad = rank == RANKS - 1
    if is_bad and when == "start":
        fail(how, folder)
        if how == "return":
            return
    ds.use(framework)
    world = ds.world()
    for _ in range(3):
        world.all_reduce_([ds.ones(10)])
    if is_bad and when == "between":
        fail(how, folder)
        if how == "return":
            return
        if how == "disagree":
            world.all_reduce_([ds.ones(10)], "max")
    if when in ("sum", "save"):
        if is_bad:
            threading.Timer(0.5, fail, (how, folder)).start()
        elif when == "sum" and rank == 0:
            time.sleep(1.5)  # the others are in the sum
        while when == "save":
            ds.save({"x": ds.Rows(ds.ones((1000, 100)))}, os.path.join(folder, "saved"), world=world)
    while True:
        world.all_reduce_([ds.ones(10)])


def left(folder: Path) -> list[str]:
    """Return the ranks' processes that still exist."""
    names = [path.name for path in folder.iterdir() if path.name[0].isdecimal()]
    assert len(names) == RANKS
    return [name for name in names if Path("/proc", name.partition("-")[2]).exists()]


KILLED = (ds.RankFailedError, "was killed by SIGKILL")
CAUSES: dict[str, tuple[type[ds.WorldError], str]] = {
    "kill": KILLED,
    "segfault": (ds.RankFailedError, "was killed by SIGSEGV"),
    "exit": (ds.RankFailedError, "ended with exit status 3"),
    "exception": (ds.RankFailedError, "ended with exit status 1: ValueError: a bad batch, at test_failing_sums.py:"),
    "stop": (ds.RankLateError, "does not answer"),
    "sleep": (ds.RankLateError, "has not come to it, and is at test_failing_sums.py:"),
    "return": (ds.RankLateError, "has returned"),
    "disagree": (ds.RanksDisagreeError, "all_reduce, max of float"),
}
CELLS = [
    *((how, "start") for how in CAUSES if how != "disagree"),
    *((how, "between") for how in CAUSES),
    *((how, when) for when in ("sum", "save") for how in ("kill", "segfault", "exit", "stop")),
]


@pytest.mark.parametrize(("how", "when"), CELLS)
def test_a_failing_rank_is_named_in_time(how: str, when: str, tmp_path: Path) -> None:
    kind, words = CAUSES[how]
    framework = ds.framework().__name__.split(".")[0]
    with pytest.raises(ds.WorldError) as caught:
        ds.launch(job, framework, how, when, str(tmp_path), ranks_per_host=RANKS, timeout=TIMEOUT)
    waited = time.time() - (tmp_path / "failed").stat().st_mtime
    error: Any = caught.value
    assert type(error) is kind, error
    assert words in error.problem
    assert "rank 2 on " in error.problem
    assert waited < TIMEOUT + 7, error
    if kind is ds.RankLateError:
        assert error.late == (2,)
    elif kind is ds.RankFailedError:
        assert error.rank == 2
    assert left(tmp_path) == []
    if when == "save":
        saved = ds.load(str(tmp_path / "saved"))
        assert np.array_equal(ds.to_numpy(saved["x"]), np.ones((3000, 100)))


def still(framework: str) -> str:
    """Wait in the middle of a job until the caller has looked."""
    ds.use(framework)
    world = ds.world()
    world.all_reduce_([ds.ones(10)])
    world.barrier()
    time.sleep(4)
    world.barrier()
    return os.environ["DEVSHIM_JOB"]


def test_a_job_on_one_machine_listens_on_loopback_alone(listening: Callable[..., set[str]]) -> None:
    seen: set[str] = set()
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            seen.update(listening(os.getpid()))
            time.sleep(0.3)

    looking = threading.Thread(target=look)
    before = listening(os.getpid())
    looking.start()
    try:
        ds.launch(still, ds.framework().__name__.split(".")[0], ranks_per_host=2, timeout=60)
    finally:
        done.set()
        looking.join()
    found = seen - before
    assert found  # Ray listens
    assert [each for each in found if not each.partition(":")[0].endswith("7F")] == []
