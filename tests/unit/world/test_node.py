"""Tests of the node of this machine in a cluster: what is refused before Ray starts, and Ctrl-C; without Ray."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

import devshim as ds
from devshim.world import cluster, node


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the state of this machine, with a token."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "my state"))
    monkeypatch.setattr(cluster, "require_ray", lambda: None)
    folder = node.state_folder()
    cluster.make_token(folder)
    return folder


@pytest.mark.usefixtures("state")
@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost"])
def test_an_address_of_one_machine_for_itself_is_not_joined(host: str) -> None:
    with pytest.raises(ds.WorldError, match=f"no other machine can join the cluster at {host}:6379"):
        node.join(f"{host}:6379")


@pytest.mark.usefixtures("state")
@pytest.mark.parametrize(
    ("listen", "reason"),
    [
        ("127.0.0.2", "the other machines cannot reach it"),
        ("0.0.0.0", "the others need one address by which they reach this machine"),
        ("198.51.100.1", "Cannot assign requested address"),
    ],
)
def test_a_machine_joins_with_an_address_of_its_own(listen: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "require_cluster", lambda *_: None)
    with pytest.raises(ds.WorldError, match=f"cannot join with the address {listen}: {reason}"):
        node.join("198.51.100.2:6379", listen=listen)


@pytest.mark.usefixtures("state")
def test_a_cluster_needs_one_address() -> None:
    with pytest.raises(ds.WorldError, match=r"cannot listen on 0\.0\.0\.0:6379: the others need one address"):
        node.start("0.0.0.0", 6379)


def test_a_command_in_a_hint_can_be_typed(state: Path) -> None:
    (state / "token").chmod(0o644)
    with pytest.raises(ds.WorldError, match="others may read the token") as caught:
        node.join("198.51.100.2:6379")
    assert caught.value.hint == f"chmod 600 '{state}/token'"


def test_a_machine_does_not_join_after_ctrl_c(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def interrupt(process: subprocess.Popen[bytes], log: Path) -> None:
        started.append(process)
        raise KeyboardInterrupt

    start = subprocess.Popen

    def sleep(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        return start(["sleep", "1000"], **options)

    monkeypatch.setattr(node, "_wait_for", interrupt)
    monkeypatch.setattr(subprocess, "Popen", sleep)
    with pytest.raises(KeyboardInterrupt):
        node._start([], "198.51.100.2:6379", "198.51.100.3", state / "token", None)
    assert started[0].wait(10) < 0
    assert node.running() is None
    assert sorted(path.name for path in state.iterdir()) == ["node.log", "token"]
