"""A rank fails in every way, at the start, in a sum, in a save and between, on simulated hosts.

To start a rank takes most of the time of a job. So the jobs have three ranks in a sum, and two elsewhere. The error
must come in time and name the rank, its host and the innermost line of the program. After each test, no process,
port, shared memory or temporary folder may be left of it. The job is in `failing_ranks`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import failing_ranks
import numpy as np
import pytest
from failing_ranks import CAUSES, LATEST, LONG, MOMENTS, busy, check, job, left
from leftovers import MARK, nothing_left

import devshim as ds
from devshim.world.simulated_hosts import SimulatedHosts

TIMEOUT = 4.0
RANKS = 3

CELLS = [(how, when) for when in MOMENTS for how in CAUSES]


@pytest.fixture(scope="module", autouse=True)
def _run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Mark all processes of this file, and give them their own folder; Ray needs a short path."""
    tmp_path_factory.getbasetemp()  # not in that folder
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="d-") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv(MARK, folder)
        patch.setenv("TMPDIR", folder)
        patch.setattr(tempfile, "tempdir", None)
        with nothing_left():
            yield


@pytest.fixture(scope="module")
def started() -> Iterator[SimulatedHosts]:
    """Start three simulated hosts for all tests of this file."""
    cluster = SimulatedHosts(hosts=RANKS, cards=0)
    yield cluster
    cluster.close()


@pytest.fixture
def another(started: SimulatedHosts) -> str:
    """Start another host, which the test may lose, and return its name."""
    return started.add()


@pytest.fixture
def hosts(started: SimulatedHosts, when: str) -> Iterator[list[str]]:
    """Return the names of hosts that run, one for each rank; what a test leaves on them is an error."""
    with nothing_left():
        yield started.names[: RANKS if when == "sum" else 2]


def framework() -> str:
    """Return the name of the framework of this environment."""
    return ds.framework().__name__.split(".")[0]


@pytest.mark.parametrize(("how", "when"), CELLS)
def test_a_failing_rank_is_named_in_time(hosts: list[str], how: str, when: str, tmp_path: Path) -> None:
    bad, timeout = len(hosts) - 1, TIMEOUT * busy()
    with pytest.raises(ds.WorldError) as caught:
        ds.launch(job, framework(), how, when, str(tmp_path), bad, hosts=hosts, timeout=timeout)
    assert (tmp_path / "failed").exists(), caught.value
    waited = time.time() - (tmp_path / "failed").stat().st_mtime
    check(caught.value, how, bad, hosts[bad], len(hosts))
    assert waited < timeout + LATEST * busy(), caught.value
    assert not (tmp_path / "continued").exists()  # a stopped rank runs no further line of its program
    assert len(list(tmp_path.glob("process-*"))) == len(hosts)
    assert left(tmp_path) == []
    if when == "save":
        saved = ds.load(str(tmp_path / "saved"))
        assert np.array_equal(ds.to_numpy(saved["x"]), np.ones((1000 * len(hosts), 100)))


def wait_for(folder: Path, name: str, caller: subprocess.Popen[str] | None = None) -> None:
    """Wait until a rank has touched a file, while its caller runs."""
    until = time.monotonic() + LONG
    while not (folder / name).exists():
        if caller is not None and caller.poll() is not None:
            pytest.fail(f"the caller has ended: {caller.communicate()[1]}")
        assert time.monotonic() < until, sorted(path.name for path in folder.iterdir())
        time.sleep(0.05)


@pytest.mark.parametrize("when", MOMENTS)
def test_a_lost_host_is_named_in_time(
    started: SimulatedHosts, another: str, hosts: list[str], when: str, tmp_path: Path
) -> None:
    def lose() -> None:
        wait_for(tmp_path, "failed")
        started.lose(another)
        (tmp_path / "lost").touch()

    losing = threading.Thread(target=lose)
    losing.start()
    bad, names, timeout = len(hosts) - 1, [*hosts[:-1], another], (TIMEOUT + 6) * busy()
    with pytest.raises(ds.HostLostError, match=f"rank {bad} on {another} was lost with its host") as caught:
        ds.launch(job, framework(), "wait", when, str(tmp_path), bad, hosts=names, timeout=timeout)
    losing.join()
    assert time.time() - (tmp_path / "lost").stat().st_mtime < timeout + LATEST * busy()
    assert (caught.value.host, caught.value.ranks) == (another, (bad,))
    assert left(tmp_path) == []


LAUNCH = """
import sys
sys.path.insert(0, sys.argv[1])
import devshim as ds
import failing_ranks
ds.launch(failing_ranks.job, *sys.argv[2:6], int(sys.argv[6]), hosts=sys.argv[7:], timeout=100)
"""


@pytest.mark.parametrize("when", MOMENTS)
@pytest.mark.parametrize("who", ["caller", "launcher"])
def test_no_rank_is_left_if_its_launcher_is_killed(hosts: list[str], who: str, when: str, tmp_path: Path) -> None:
    folder, bad = str(Path(failing_ranks.__file__).parent), str(len(hosts) - 1)
    words = [folder, framework(), "wait", when, str(tmp_path), bad, *hosts]
    with subprocess.Popen([sys.executable, "-c", LAUNCH, *words], stderr=subprocess.PIPE, text=True) as caller:
        wait_for(tmp_path, "failed", caller)
        assert len(left(tmp_path)) == len(hosts)
        children = Path(f"/proc/{caller.pid}/task/{caller.pid}/children").read_text().split()
        os.kill(caller.pid if who == "caller" else int(children[0]), signal.SIGKILL)
        until = time.monotonic() + 30
        while left(tmp_path) and time.monotonic() < until:
            time.sleep(0.1)
        assert left(tmp_path) == []
        said = caller.communicate(timeout=60)[1]
    assert who == "caller" or "the launcher of the job ended unexpectedly" in said
