"""Tests that a host is not called lost because its memory is full, or because only its agent has ended."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from listening import descendants

import devshim as ds
from devshim.world.simulated_hosts import SimulatedHosts


@pytest.fixture(scope="module", autouse=True)
def _full_host() -> Iterator[None]:
    """Start a host on which Ray would end processes to free memory: at one hundredth of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_memory_usage_threshold", "0.01")
        cluster = SimulatedHosts(hosts=1, cards=0)
        yield
        cluster.close()


def wait(seconds: float) -> str:
    """Wait, and return this rank's number."""
    time.sleep(seconds)
    return os.environ["RANK"]


def test_full_memory_ends_no_agent() -> None:
    assert ds.launch(wait, 3.0, ranks_per_host=2) == ["0", "1"]


def wait_once(folder: str) -> str:
    """Wait forever in the first start; return the number of the start."""
    Path(folder, os.environ["RANK"]).touch()
    if os.environ["DEVSHIM_ATTEMPT"] == "0":
        time.sleep(100)
    return os.environ["DEVSHIM_ATTEMPT"]


def test_a_job_whose_agent_has_ended_starts_again_on_the_same_host(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def kill() -> None:
        while len(list(tmp_path.iterdir())) < 2:
            time.sleep(0.05)
        for process in descendants(os.getpid()):
            with suppress(FileNotFoundError, ProcessLookupError):
                if Path(f"/proc/{process}/cmdline").read_bytes().startswith(b"ray::Agent."):
                    os.kill(process, signal.SIGKILL)

    killing = threading.Thread(target=kill, daemon=True)
    killing.start()
    assert ds.launch(wait_once, str(tmp_path), ranks_per_host=2, retries=1) == ["1", "1"]
    killing.join()
    message = "the agent of host0, which runs rank 0 on host0, rank 1 on host0, has failed: "
    assert message in capfd.readouterr().err
