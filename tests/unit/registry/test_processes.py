"""Tests of how the end of a process is described, and if a process is alive."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from devshim.registry.processes import describe_exit, is_alive


@pytest.mark.parametrize(
    ("status", "described"),
    [
        (-9, "was killed by SIGKILL"),
        (-250, "was killed by signal 250"),
        (0, "ended with exit status 0"),
        (3, "ended with exit status 3"),
    ],
)
def test_the_end_of_a_process_is_described(status: int, described: str) -> None:
    assert describe_exit(status) == described


def test_a_process_is_alive_until_it_was_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert is_alive(child.pid)
        child.kill()
    assert not is_alive(child.pid)

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    assert is_alive(1)
