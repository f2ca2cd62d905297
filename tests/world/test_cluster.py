"""Tests of `ds.launch` on two pretended hosts, one of which is lost."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import devshim as ds


def place() -> tuple[str, str, str]:
    """Return this rank's number, the hosts of all ranks, and how many GPUs are simulated in it."""
    return os.environ["RANK"], os.environ["DEVSHIM_HOSTS"], os.environ["DEVSHIM_SIMULATE_GPUS"]


def wait(folder: str) -> str:
    """Return at once in a second start, and never in the first."""
    Path(folder, os.environ["RANK"]).touch()
    if os.environ["DEVSHIM_ATTEMPT"] == "0":
        time.sleep(100)
    return os.environ["DEVSHIM_HOSTS"]


def test_two_hosts(devshim_cluster: Callable[..., Any], tmp_path: Path) -> None:
    cluster = devshim_cluster(hosts=2, cards=2)
    assert cluster.names == ["host0", "host1"]
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
