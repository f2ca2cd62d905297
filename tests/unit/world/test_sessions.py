"""Tests of the end of a session: everything that one process started, even after that process has ended."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from devshim.world import sessions

LEAVING = """
import subprocess, sys
for _ in range(2):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
print("started", flush=True)
if sys.argv[1:] == ["stay"]:
    input()
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the processes of a session are listed in /proc")


def start(*words: str) -> subprocess.Popen[str]:
    """Start a process that starts two others, in a new session."""
    started = subprocess.Popen(
        [sys.executable, "-c", LEAVING, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert started.stdout is not None
    assert started.stdout.readline() == "started\n"
    return started


@pytest.mark.parametrize("words", [(), ("stay",)])
def test_nothing_is_left_of_a_session(words: tuple[str, ...]) -> None:
    with start(*words) as first:
        assert len(sessions.members(first.pid)) == 2
        sessions.finish(first, 0.5)
        assert sessions.members(first.pid) == []
        assert first.returncode == (-9 if words else 0)


def test_a_process_that_has_been_waited_for() -> None:
    with start() as first:
        first.wait()
        began = time.monotonic()
        sessions.finish(first, 100)
        assert time.monotonic() - began < 50
        assert sessions.members(first.pid) == []
