"""Tests of jobs with 64 ranks of NumPy on one machine: they start, one that fails is named, and nothing is left."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

import devshim as ds

RANKS = 64
BAD = 37


def place(folder: str) -> tuple[int, int, Any]:
    """Return this rank's number, the number of all, and its rows of 1,000."""
    Path(folder, f"{os.getpid()}").touch()
    world = ds.world()
    return world.rank, world.size, world.part(1000)


def refused() -> str:
    """Return why ranks that Ray would connect cannot add a tensor."""
    ds.use("numpy")
    try:
        ds.world().all_reduce_([ds.ones(10)])
    except ds.UnsupportedError as error:
        return error.problem
    return ""


def failing(folder: str) -> None:
    """Wait, except one rank, which is killed once all are there."""
    Path(folder, f"{os.getpid()}").touch()
    if ds.world().rank == BAD:
        while len(list(Path(folder).iterdir())) < RANKS:
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(1000)


def left(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if Path("/proc", path.name).exists()]


def test_all_ranks_start(tmp_path: Path) -> None:
    results = ds.launch(place, str(tmp_path), ranks_per_host=RANKS)
    assert [rank for rank, _, _ in results] == list(range(RANKS))
    assert {size for _, size, _ in results} == {RANKS}
    rows = [part for _, _, part in results]
    assert [part.start for part in rows] == [0, *(part.stop for part in rows[:-1])]
    assert rows[-1].stop == 1000
    assert left(tmp_path) == []


def test_sums_by_ray_are_refused_with_the_reason() -> None:
    (reason,) = set(ds.launch(refused, ranks_per_host=RANKS))
    assert reason == f"the portable engine connects at most 16 ranks, and this job has {RANKS}"


def test_a_killed_rank_is_named(tmp_path: Path) -> None:
    with pytest.raises(ds.RankFailedError) as caught:
        ds.launch(failing, str(tmp_path), ranks_per_host=RANKS)
    assert (caught.value.rank, caught.value.status) == (BAD, -9)
    assert f"rank {BAD} on " in caught.value.problem
    assert len(list(tmp_path.iterdir())) == RANKS
    assert left(tmp_path) == []
