"""Tests of `ds.launch` on two simulated hosts, one of which is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from leftovers import MARK, marked
from listening import descendants

import devshim as ds
from devshim.world.simulated_hosts import SimulatedHosts


def place() -> tuple[str, str, str]:
    """Return this rank's number, the hosts of all ranks, and how many GPUs are simulated in it."""
    return os.environ["RANK"], os.environ["DEVSHIM_HOSTS"], os.environ["DEVSHIM_SIMULATE_GPUS"]


def _command(process: int) -> str:
    """Return the command of a process, or an empty text if it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def wait(folder: str) -> str:
    """Return immediately in a second start, and never in the first."""
    Path(folder, os.environ["RANK"]).touch()
    if os.environ["DEVSHIM_ATTEMPT"] == "0":
        time.sleep(100)
    return os.environ["DEVSHIM_HOSTS"]


def test_two_hosts(devshim_cluster: Callable[..., Any], tmp_path: Path) -> None:
    cluster = devshim_cluster(hosts=2, cards=2)
    assert cluster.names == ["host0", "host1"]
    commands = {_command(process) for process in descendants(os.getpid())}
    helpers = [each for each in commands if each.startswith(sys.executable) and "/idle_helper.py --" in each]
    assert len(helpers) == 4  # two in each node, in place of Ray's own
    assert [each for each in commands if "agent.py" in each or "RuntimeEnvAgent" in each or "Dashboard" in each] == []
    every = "host0,host0,host1,host1"
    assert ds.launch(place) == [(str(rank), every, "1") for rank in range(4)]
    assert ds.launch(place, cards_per_rank=2, hosts=["host1"]) == [("0", "host1", "2")]
    with pytest.raises(ds.ArgumentError, match="the cluster has no host elsewhere: it has host0, host1"):
        ds.launch(place, hosts=["elsewhere"])
    with pytest.raises(ds.ArgumentError, match="host0 has 2 GPUs"):
        ds.launch(place, cards_per_rank=3)

    def lose() -> None:
        while len(list(tmp_path.iterdir())) < 4:
            time.sleep(0.1)
        cluster.lose("host1")

    losing = threading.Thread(target=lose)
    losing.start()
    assert ds.launch(wait, str(tmp_path), retries=1, min_ranks=2) == ["host0,host0"] * 2
    losing.join()


STEPS = 6


def trained(framework: str, folder: str, how: str) -> tuple[int, int, int, float]:
    """Add a number in each step, and save; in the first start, rank 1 is killed or waits for the end of its host."""
    ds.use(framework)
    world = ds.world()
    path = os.path.join(folder, "saved")
    state: Any = {"total": ds.zeros((1,)), "step": 0}
    if os.path.exists(path):
        state = ds.load(path, into=state, world=world)
    first = state["step"]
    for step in range(first, STEPS):
        if step == 3 and world.attempt == 0 and world.rank == 1:
            Path(folder, "failed").touch()
            if how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(100)
        (mean,) = world.all_reduce_([ds.full((1,), float(step))], "mean")
        state = {"total": state["total"] + mean, "step": step + 1}
        ds.save(state, path, world=world)
    return world.attempt, world.size, first, float(ds.to_numpy(state["total"])[0])


@pytest.fixture(scope="module")
def hosts() -> Iterator[SimulatedHosts]:
    """Start two simulated hosts, of which the last test loses one."""
    cluster = SimulatedHosts(hosts=2, cards=0)
    yield cluster
    cluster.close()


@pytest.mark.parametrize("how", ["kill", "lose"])
def test_a_job_continues_from_its_checkpoint(hosts: SimulatedHosts, tmp_path: Path, how: str) -> None:
    def lose() -> None:
        while not (tmp_path / "failed").exists():
            time.sleep(0.05)
        hosts.lose("host1")

    losing = threading.Thread(target=lose)
    if how == "lose":
        losing.start()
    name = ds.framework().__name__.split(".")[0]
    results = ds.launch(trained, name, str(tmp_path), how, retries=1, min_ranks=1)
    assert results == [(1, 2 if how == "kill" else 1, 3, float(sum(range(STEPS))))] * (2 if how == "kill" else 1)
    if how == "lose":
        losing.join()


HOSTS = """
import os, sys
from devshim.world.simulated_hosts import SimulatedHosts
hosts = SimulatedHosts(2, 0)
os.kill(os.getpid(), int(sys.argv[1]))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_simulated_hosts_end_with_their_process(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MARK, str(tmp_path))
    done = subprocess.run([sys.executable, "-c", HOSTS, str(int(number))], timeout=120, check=False)
    assert done.returncode == -number
    until = time.monotonic() + 60
    while (left := marked()) and time.monotonic() < until:
        time.sleep(0.1)
    assert left == {}
