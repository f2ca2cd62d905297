"""Tests of the ranks of one host: which have ended, and which are stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from devshim.world import launchers

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the ranks are listed in /proc")

RANK = """
import os, sys
from devshim.world import siblings
from devshim.world.launchers import find_place
place = find_place(os.environ)
for line in sys.stdin:
    print(siblings.ended(place), siblings.stopped(place), flush=True)
"""


def start(rank: int, port: str, *wrapper: str, **variables: str) -> subprocess.Popen[str]:
    """Start a rank of three."""
    whole = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "3", **variables}
    return subprocess.Popen(
        [*wrapper, sys.executable, "-c", RANK],
        env={**os.environ, **whole, "MASTER_PORT": port, "MASTER_ADDR": "127.0.0.1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def ask(rank: subprocess.Popen[str]) -> str:
    """Return the state of the other ranks in the view of a rank: which have ended, and which are stopped."""
    assert rank.stdin is not None
    assert rank.stdout is not None
    rank.stdin.write("\n")
    rank.stdin.flush()
    return rank.stdout.readline().strip()


def wait_for_state(process: int, states: str) -> None:
    until = time.monotonic() + 30
    while Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in states:
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_rank_that_ended_or_is_stopped_is_known() -> None:
    ranks = [start(rank, "4242") for rank in range(3)]
    other = start(2, "4343")  # of another job of the same parent
    try:
        assert ask(ranks[0]) == "[] []"
        ranks[1].send_signal(signal.SIGSTOP)
        wait_for_state(ranks[1].pid, "T")
        assert ask(ranks[0]) == "[] [1]"
        ranks[2].kill()
        wait_for_state(ranks[2].pid, "Z")
        assert ask(ranks[0]) == "[2] [1]"
        ranks[2].wait()
        assert ask(ranks[0]) == "[2] [1]"
    finally:
        for each in (*ranks, other):
            each.kill()
            each.communicate()


def test_ranks_of_other_hosts_are_unknown() -> None:
    hosts = {"DEVSHIM_HOSTS": "a,b,a", "DEVSHIM_JOB": "x", "LOCAL_WORLD_SIZE": "2"}
    ranks = [start(rank, "4444", **hosts, **({"LOCAL_RANK": "0"} if rank == 1 else {})) for rank in (0, 2)]
    try:
        assert ask(ranks[0]) == "[] []"
        ranks[1].kill()
        wait_for_state(ranks[1].pid, "Z")
        assert ask(ranks[0]) == "[2] []"
    finally:
        for each in ranks:
            each.kill()
            each.communicate()


def test_ranks_in_wrappers_know_each_other() -> None:
    shell = ("bash", "-c", '"$@"; exit $?', "wrapper")  # two commands, or the shell would become the rank
    ranks = [start(0, "4545", *shell), start(1, "4545", "timeout", "60", *shell), start(2, "4545")]
    try:
        assert [ask(rank) for rank in ranks] == ["[] []"] * 3
        ranks[1].kill()
        wait_for_state(ranks[1].pid, "Z")
        assert ask(ranks[0]) == ask(ranks[2]) == "[1] []"
    finally:
        for each in ranks:
            each.kill()
            each.communicate()


@pytest.mark.parametrize(
    ("parent", "expected"),
    [
        ({"RANK": "1", "WORLD_SIZE": "2"}, True),
        ({"RANK": "0", "WORLD_SIZE": "2"}, False),
        ({"RANK": "1", "WORLD_SIZE": "2", "DEVSHIM_JOB": "a"}, False),  # a rank that has started a launcher itself
        ({}, False),
    ],
)
def test_a_wrapper_has_the_variables_of_its_rank(parent: dict[str, str], expected: bool) -> None:
    assert launchers.is_wrapper(parent, {"RANK": "1", "WORLD_SIZE": "2"}) is expected
