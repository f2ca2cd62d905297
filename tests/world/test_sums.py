"""Tests of `ds.world` in real processes: the ranks of `ds.launch`, and of torchrun's variables without a launcher."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from one_host import host as host

import devshim as ds
from devshim.testing.ports import free_port

SIZE = 3
DATA = [np.random.default_rng(rank).normal(size=50_000).astype("float32") for rank in range(SIZE)]
TOTAL = DATA[0] + DATA[1] + DATA[2]


def job(framework: str) -> list[Any]:
    """Return what a rank computes: a sum of its GPUs' tensors and of all ranks, a broadcast and a gathered list.

    And which signals reach the program: Ray blocks one, and handles another itself.
    """
    signals: list[str] = []
    signal.signal(signal.SIGTERM, lambda *_: signals.append("SIGTERM"))
    ds.use(framework)
    world = ds.world()
    large = np.random.default_rng(world.rank).normal(size=50_000).astype("float32")
    mine = ds.from_numpy(large, world.devices[0])
    (tree,) = world.all_reduce_([{"large": mine, "small": ds.ones(2, device=world.devices[0])}])
    step = world.broadcast({"step": world.rank, "x": ds.full((2,), float(world.rank))}, root=1)
    gathered = [ds.to_numpy(each).tolist() for each in world.all_gather(ds.zeros(world.rank))]
    world.barrier()
    where = str(ds.device_of(tree["large"]))
    found = ds.to_numpy(tree["large"])
    signal.raise_signal(signal.SIGTERM)
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        signals.append("SIGINT")
    return [
        world.rank,
        found,
        ds.to_numpy(tree["small"]).tolist(),
        step["step"],
        ds.to_numpy(step["x"]),
        gathered,
        where,
        signals,
    ]


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize("way", ["", "portable"])
def test_ranks_of_launch_compute_together(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    framework = ds.framework().__name__.split(".")[0]
    if framework == "numpy" and not way:
        pytest.skip("NumPy has no engine, so that this is the portable way")
    monkeypatch.setenv("DEVSHIM_ENGINE", way)
    results = ds.launch(job, framework, ranks_per_host=SIZE, simulate=2, timeout=30)
    assert [each[0] for each in results] == list(range(SIZE))
    for _, large, small, step, x, gathered, where, signals in results:
        assert large.tobytes() == results[0][1].tobytes()
        np.testing.assert_allclose(large, TOTAL, rtol=0, atol=2e-6)  # an engine has its own order
        assert way != "portable" or large.tobytes() == TOTAL.tobytes()
        assert small == [3, 3]
        assert (step, x.tolist()) == (1, [1, 1])
        assert gathered == [[], [0], [0, 0]]
        assert where == "gpu:0"
        assert signals == ["SIGTERM", "SIGINT"]


def disagreeing() -> None:
    ds.use("numpy")
    world = ds.world()
    world.all_reduce_([ds.ones(2 + world.rank)])


@pytest.mark.usefixtures("host")
def test_ranks_that_disagree_are_one_error() -> None:
    with pytest.raises(ds.RanksDisagreeError, match=r"rank \d on .*float\d\d \(2,\)"):
        ds.launch(disagreeing, ranks_per_host=2, timeout=20)


PROGRAM = """
import signal
import devshim as ds
ds.use("numpy")
signal.signal(signal.SIGTERM, lambda *_: print("SIGTERM"))
world = ds.world()
(x,) = world.all_reduce_([ds.full((3,), float(world.rank + 1))])
print(world.rank, world.size, x.tolist())
signal.raise_signal(signal.SIGTERM)
"""


LAUNCHERS = {
    "torchrun": {
        "RANK": "{rank}",
        "LOCAL_RANK": "{rank}",
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "1",
    },
    "a shell": {
        "RANK": "{rank}",
        "LOCAL_RANK": "{rank}",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "1",
    },
    "srun": {
        "SLURM_PROCID": "{rank}",
        "SLURM_LOCALID": "{rank}",
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_STEP_NUM_NODES": "1",
    },
    "mpirun of Open MPI": {
        "OMPI_COMM_WORLD_RANK": "{rank}",
        "OMPI_COMM_WORLD_LOCAL_RANK": "{rank}",
        "OMPI_COMM_WORLD_SIZE": "2",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    },
    "mpirun of MPICH": {
        "PMI_RANK": "{rank}",
        "MPI_LOCALRANKID": "{rank}",
        "PMI_SIZE": "2",
        "MPI_LOCALNRANKS": "2",
    },
}
"""The variables of each rank of two on one host."""


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_another_launcher_needs_only_its_variables(launcher: str) -> None:
    started = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, **{name: value.format(rank=rank) for name, value in LAUNCHERS[launcher].items()}},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    printed = [each.communicate(timeout=90)[0] for each in started]
    assert printed == [f"{rank} 2 [3.0, 3.0, 3.0]\nSIGTERM\n" for rank in range(2)]
    assert [each.returncode for each in started] == [0, 0]


KILLED = """
import os, sys, time
import devshim as ds
ds.use(sys.argv[1])
world = ds.world()
world.all_reduce_([ds.ones(3)])
if world.rank == 2:
    os._exit(3)
try:
    for _ in range(1000):
        world.all_reduce_([ds.ones(3)])
except ds.RankFailedError as error:
    print(error.rank, error, flush=True)
    time.sleep(3)
    os._exit(0)
"""


def test_an_engine_names_the_rank_of_this_host_that_ended() -> None:
    framework = ds.framework().__name__.split(".")[0]
    if framework != "torch":
        pytest.skip("the engine of the others ends the process, or is not the default")
    port = str(free_port())
    common = {"WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", KILLED, framework],
            env={**os.environ, **common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(3)
    ]
    printed = [each.communicate(timeout=90)[0] for each in started]
    assert started[2].returncode == 3
    for text in printed[:2]:
        assert text.startswith("2 "), printed
        assert "(rank 2" in text
        assert "has ended)" in text
