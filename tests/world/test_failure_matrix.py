"""A rank of three fails in every way, at the start, in a sum, in a save and between, on three pretended hosts.

The error must come in time and name the rank, its host and the innermost line of the program. After each test, no
process, port, shared memory or temporary folder may be left of it; each rank has a child process, which must end, too.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import leftovers
import numpy as np
import pytest
from leftovers import MARK, nothing_left

import devshim as ds
from devshim.world.pretended import Pretended

TIMEOUT = 4.0
LATEST = TIMEOUT + 7
"""Seconds from the failure to the error."""
RANKS = 3
BAD = RANKS - 1
HERE = Path(__file__).name
LONG = 100


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
    if how in ("sleep", "wait"):
        time.sleep(LONG)
    if how == "return":
        raise SystemExit(0)
    if how == "disagree":
        ds.world().all_reduce_([ds.ones(10)], "max")


def fail_soon(how: str, folder: str) -> None:
    """Fail in half a second, wherever the program is then: in another thread, or interrupting the main one."""
    if how == "disagree":  # another call while the others are in theirs
        time.sleep(0.5)
        fail(how, folder)
    if how == "wait":  # somebody else ends the rank
        threading.Timer(0.5, Path(folder, "failed").touch).start()
        return
    if how == "return":  # an exit with status 0, as of a library that gives up
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
    while len(list(Path(folder).glob(f"{name}-*"))) < RANKS and time.monotonic() < until:
        time.sleep(0.02)


def job(framework: str, how: str, when: str, folder: str) -> None:
    """Sum or save until the job ends; rank 2 fails."""
    rank = int(os.environ["RANK"])
    Path(folder, f"process-{rank}-{os.getpid()}").touch()
    subprocess.Popen(["sleep", "1000"])
    ds.use(framework)
    ds.ones(10)
    meet(folder, "imported")
    if rank == BAD and when == "start":
        fail(how, folder)
    world = ds.world()
    for _ in range(3):
        world.all_reduce_([ds.ones(10)])
    if rank == BAD and when == "between":
        fail(how, folder)
    state, path = {"x": ds.Rows(ds.ones((1000, 100)))}, os.path.join(folder, "saved")
    if when == "save":
        ds.save(state, path, world=world)  # a whole one, before the rank fails
    if rank == BAD:
        fail_soon(how, folder)
    elif when == "sum" and rank == 0:
        time.sleep(1.5)  # the others are in the sum
    while when == "save":
        ds.save(state, path, world=world)
    while True:
        world.all_reduce_([ds.ones(10)])


CAUSES: dict[str, tuple[type[ds.WorldError], str]] = {
    "kill": (ds.RankFailedError, f"rank 2 on host2 was killed by SIGKILL, at {HERE}:"),
    "segfault": (ds.RankFailedError, f"rank 2 on host2 was killed by SIGSEGV, at {HERE}:"),
    "exit": (ds.RankFailedError, f"rank 2 on host2 ended with exit status 3, at {HERE}:"),
    "exception": (
        ds.RankFailedError,
        f"rank 2 on host2 ended with exit status 1: ValueError: a bad batch, at {HERE}:",
    ),
    "stop": (ds.RankLateError, f"rank 2 on host2 does not answer, and was last at {HERE}:"),
    "sleep": (ds.RankLateError, f"at {HERE}:"),
    "return": (ds.RankLateError, "rank 2 on host2 has returned"),
    "disagree": (ds.RanksDisagreeError, f"rank 2 at {HERE}:"),
}
CELLS = [(how, when) for when in ("start", "between", "sum", "save") for how in CAUSES]
DEATHS = ("kill", "segfault", "exit")


@pytest.fixture(scope="module", autouse=True)
def _run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Mark all processes of this file, and give them a folder of their own; Ray needs a short path."""
    tmp_path_factory.getbasetemp()  # not in that folder
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="d-") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv(MARK, folder)
        patch.setenv("TMPDIR", folder)
        patch.setattr(tempfile, "tempdir", None)
        with nothing_left():
            yield


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    with nothing_left():
        yield


@pytest.fixture(scope="module")
def hosts() -> Iterator[Pretended]:
    """Start three pretended hosts for all tests of this file."""
    cluster = Pretended(hosts=RANKS, cards=0)
    yield cluster
    cluster.close()


def framework() -> str:
    """Return the name of the framework of this environment."""
    return ds.framework().__name__.split(".")[0]


def left(folder: Path) -> list[int]:
    """Return the ranks' processes that still exist."""
    processes = [int(path.name.rpartition("-")[2]) for path in folder.glob("process-*")]
    return [process for process in processes if Path(f"/proc/{process}").exists()]


@pytest.mark.parametrize(("how", "when"), CELLS)
def test_a_failing_rank_is_named_in_time(hosts: Pretended, how: str, when: str, tmp_path: Path) -> None:
    kind, words = CAUSES[how]
    with pytest.raises(ds.WorldError) as caught:
        ds.launch(job, framework(), how, when, str(tmp_path), timeout=TIMEOUT)
    waited = time.time() - (tmp_path / "failed").stat().st_mtime
    error: Any = caught.value
    assert type(error) is kind, error
    assert words in error.problem
    assert "rank 2 on host2" in error.problem
    assert waited < LATEST, error
    if kind is ds.RankLateError:
        assert error.late == (2,)
    elif kind is ds.RankFailedError:
        assert (error.rank, error.host) == (2, "host2")
    assert len(list(tmp_path.glob("process-*"))) == RANKS
    assert left(tmp_path) == []
    if when == "save":
        saved = ds.load(str(tmp_path / "saved"))
        assert np.array_equal(ds.to_numpy(saved["x"]), np.ones((3000, 100)))


WHEN = ("start", "between", "sum", "save")


def wait_for(folder: Path, name: str, caller: subprocess.Popen[str] | None = None) -> None:
    """Wait until a rank has touched a file, while its caller runs."""
    until = time.monotonic() + LONG
    while not (folder / name).exists():
        if caller is not None and caller.poll() is not None:
            pytest.fail(f"the caller has ended: {caller.communicate()[1]}")
        assert time.monotonic() < until, sorted(path.name for path in folder.iterdir())
        time.sleep(0.05)


@pytest.mark.parametrize("when", WHEN)
def test_a_lost_host_is_named_in_time(devshim_cluster: Callable[..., Any], when: str, tmp_path: Path) -> None:
    cluster = devshim_cluster(hosts=RANKS, cards=0)

    def lose() -> None:
        wait_for(tmp_path, "failed")
        cluster.lose("host2")
        (tmp_path / "lost").touch()

    losing = threading.Thread(target=lose)
    losing.start()
    with pytest.raises(ds.HostLostError, match="rank 2 on host2 was lost with its host") as caught:
        ds.launch(job, framework(), "wait", when, str(tmp_path), timeout=TIMEOUT + 6)
    losing.join()
    assert time.time() - (tmp_path / "lost").stat().st_mtime < TIMEOUT + 13
    assert (caught.value.host, caught.value.ranks) == ("host2", (2,))
    assert left(tmp_path) == []


LAUNCH = """
import os, sys
sys.path[:0] = sys.argv[1].split(os.pathsep)
import devshim as ds
import test_failure_matrix as matrix
ds.launch(matrix.job, *sys.argv[2:], timeout=100)
"""


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("who", ["caller", "launcher"])
def test_no_rank_is_left_if_its_launcher_is_killed(hosts: Pretended, who: str, when: str, tmp_path: Path) -> None:
    folders = os.pathsep.join(str(Path(file).parent) for file in (__file__, leftovers.__file__))
    words = [folders, framework(), "wait", when, str(tmp_path)]
    with subprocess.Popen([sys.executable, "-c", LAUNCH, *words], stderr=subprocess.PIPE, text=True) as caller:
        wait_for(tmp_path, "failed", caller)
        assert len(left(tmp_path)) == RANKS
        children = Path(f"/proc/{caller.pid}/task/{caller.pid}/children").read_text().split()
        os.kill(caller.pid if who == "caller" else int(children[0]), signal.SIGKILL)
        until = time.monotonic() + 30
        while left(tmp_path) and time.monotonic() < until:
            time.sleep(0.1)
        assert left(tmp_path) == []
        said = caller.communicate(timeout=60)[1]
    assert who == "caller" or "the launcher of the job ended unexpectedly" in said
