"""Tests of the first code of a process that must not outlive its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from devshim.world.cluster import tied

PRINTED = "import os; print(os.environ['DEVSHIM_HEARTBEAT'], os.getpid())"


@pytest.mark.parametrize("inherited", ["15", "15:18559"])
def test_only_a_rank_gets_the_pipe_of_heartbeats(inherited: str) -> None:
    """The launcher of a job that a rank starts inherits the variable of that rank, with its process."""
    command = tied([sys.executable, "-c", PRINTED], signal.SIGKILL)
    environment = {**os.environ, "DEVSHIM_HEARTBEAT": inherited}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    found, process = done.stdout.split()
    assert found == (inherited if ":" in inherited else f"{inherited}:{process}")
