"""Tests of the restarts of a job, with made-up hosts and attempts."""

from __future__ import annotations

from typing import Any

import pytest

import devshim as ds
from devshim.world import restarts
from devshim.world.cluster import Host
from devshim.world.control import ControlProcess
from devshim.world.job import Job


class Answers(ControlProcess):
    """A control process that answers."""

    def __init__(self) -> None:
        super().__init__("127.0.0.1:1", lambda: None)

    def _why_lost(self) -> str:
        return ""


class Ended(Answers):
    """A control process that has ended."""

    def _why_lost(self) -> str:
        return "connection refused"


def fail_on(monkeypatch: pytest.MonkeyPatch, names: list[dict[str, str]], lost: str) -> list[list[str]]:
    """Let the first start lose a host; return the nodes of each start, which are added when it begins.

    Args:
        monkeypatch: The fixture.
        names: The nodes that the cluster has before each start, by their names.
        lost: The name of the host.
    """
    started: list[list[str]] = []

    class Attempt:
        def __init__(self, job: Job, hosts: list[Host], *_: Any) -> None:
            started.append([host.node for host in hosts])

        def run(self) -> list[bytes | None]:
            if len(started) > 1:
                return [b""]
            error = ds.HostLostError("lost")
            error.host = lost
            raise error

    left = iter(names)
    monkeypatch.setattr(restarts, "Attempt", Attempt)
    monkeypatch.setattr(
        restarts,
        "hosts_of",
        lambda: {name: Host(name, node, "10.0.0.1", 0, False) for name, node in next(left).items()},
    )
    return started


def test_a_job_starts_again_without_the_host_that_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two nodes of one machine have a number in their names, until only one of them is left."""
    started = fail_on(monkeypatch, [{"a": "1", "a-2": "2"}, {"a": "2"}], "a")
    assert restarts.run(Job(retries=1, min_ranks=1), lambda *_: None, Answers()) == [b""]
    assert started == [["1", "2"], ["2"]]


def test_a_job_does_not_start_again_on_a_cluster_that_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    started = fail_on(monkeypatch, [{"a": "1", "b": "2"}], "a")
    with pytest.raises(ds.WorldError, match=r"the cluster at 127\.0\.0\.1:1 has ended"):
        restarts.run(Job(retries=1, min_ranks=1), lambda *_: None, Ended())
    assert started == [["1", "2"]]
