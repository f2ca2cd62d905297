"""Tests of the arguments of `ds.launch`, which are checked before a process starts."""

from __future__ import annotations

import io
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

import devshim as ds
from devshim.cli._launch_command import launch
from devshim.contract.ranks import Place
from devshim.world import cluster, job, launcher, node, ray_peers


@pytest.mark.parametrize(
    ("value", "expected"),
    [("60s", 60), ("5min", 300), (" 1.5 h ", 5400), ("250ms", 0.25), (3, 3), (0.5, 0.5), ("7", 7)],
)
def test_a_duration(value: Any, expected: float) -> None:
    assert job.seconds(value, "timeout") == expected


@pytest.mark.parametrize("value", ["", "soon", "-1s", "5 years", 0, -1, float("inf"), float("nan"), True, None])
def test_no_duration(value: Any) -> None:
    with pytest.raises(ds.ArgumentError, match="timeout"):
        ds.launch(print, timeout=value)


@pytest.mark.parametrize(
    "options",
    [
        {"hosts": "a"},
        {"hosts": []},
        {"hosts": [1]},
        {"ranks_per_host": 0},
        {"ranks_per_host": 1.5},
        {"cards_per_rank": -1},
        {"simulate": 0},
        {"retries": -1},
        {"min_ranks": 0},
    ],
)
def test_other_arguments(options: dict[str, Any]) -> None:
    with pytest.raises(ds.ArgumentError, match=next(iter(options))):
        ds.launch(print, **options)


@pytest.mark.parametrize("cards", [0, 4])
def test_two_numbers_of_gpus_for_each_rank_contradict_each_other(cards: int) -> None:
    with pytest.raises(ds.ArgumentError, match=f"simulate=2 and cards_per_rank={cards} contradict each other"):
        ds.launch(print, simulate=2, cards_per_rank=cards)


@pytest.mark.parametrize(("hosts", "size"), [(None, 2), (["a"], 2), (["a", "b", "a"], 4)])
def test_more_ranks_for_a_restart_than_the_job_has(
    monkeypatch: pytest.MonkeyPatch, hosts: list[str] | None, size: int
) -> None:
    monkeypatch.setenv("DEVSHIM_RAY_ADDRESS", "198.51.100.1:6379" if hosts else "")
    monkeypatch.setattr(cluster, "require_ray", lambda: None)
    expected = f"min_ranks is 5, and the job has {size} ranks before any host is lost"
    with pytest.raises(ds.ArgumentError, match=expected):
        ds.launch(print, hosts=hosts, ranks_per_host=2, min_ranks=5)
    names = [] if hosts is None else [f"--hosts={','.join(hosts)}"]
    with pytest.raises(ds.ArgumentError, match=expected):
        launch.main(["--ranks=2", "--min-ranks=5", *names, "program.py"], standalone_mode=False)
    assert launcher.job_of(hosts, 2, 1, None, "60s", "5min", 0, size).min_ranks == size


def test_something_that_is_no_function() -> None:
    with pytest.raises(ds.ArgumentError, match="launch needs a function, not 3"):
        ds.launch(3)  # type: ignore[arg-type]


def test_hosts_need_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEVSHIM_RAY_ADDRESS", raising=False)
    with pytest.raises(ds.ArgumentError, match="there is no cluster"):
        ds.launch(print, hosts=["a"])


def test_a_token_is_for_its_owner_alone(tmp_path: Any) -> None:
    path = cluster.make_token(tmp_path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(path.read_text()) == 64
    with pytest.raises(FileExistsError):
        cluster.make_token(tmp_path)


def test_a_cluster_needs_a_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DEVSHIM_RAY_ADDRESS", "198.51.100.1:6379")
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH", raising=False)
    monkeypatch.setattr(cluster, "require_ray", lambda: None)
    wanted = launcher.job_of(None, None, 1, None, "60s", "5min", 0)
    with pytest.raises(ds.ArgumentError, match=r"there is no token for the cluster at 198\.51\.100\.1:6379"):
        launcher.launch_job(wanted, print)
    token = tmp_path / "token"
    token.write_text("secret")
    token.chmod(0o644)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
    with pytest.raises(ds.ArgumentError, match="others may read the token"):
        launcher.launch_job(wanted, print)


def test_a_rank_of_another_launcher_needs_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEVSHIM_RAY_ADDRESS", "198.51.100.1:6379")
    for name in ("RAY_AUTH_TOKEN_PATH", "DEVSHIM_JOB", "DEVSHIM_RAY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ds.ArgumentError, match="there is no token"):
        ray_peers.RayPeers(Place(rank=0, size=2, launcher="torchrun", one_host=False))


@pytest.mark.parametrize("rank", [0, 1])
def test_without_ray_each_rank_says_what_to_install(monkeypatch: pytest.MonkeyPatch, rank: int) -> None:
    """The second rank would otherwise wait for two minutes for the first one, which starts Ray."""
    monkeypatch.setattr(ray_peers, "find_spec", lambda name: None)
    with pytest.raises(ds.UnsupportedError, match="2 ranks exchange tensors by Ray here, and it is not") as caught:
        ray_peers.RayPeers(Place(rank=rank, size=2, launcher="torchrun", one_host=True))
    assert 'pip install "devshim[ray]"' in str(caught.value)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_what_an_output_cannot_encode_is_replaced(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding)
    monkeypatch.setattr(sys, "stdout", out)
    launcher.show_event("output", 0, "a", "stdout", ["\ufffd and 100%"])
    assert out.buffer.getvalue() == b"[0 a] ? and 100%\n"  # type: ignore[attr-defined]


def test_a_state_folder_that_cannot_be_made_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(ds.WorldError, match="for the token of a cluster cannot be made: Not a directory") as error:
        node.state_folder()
    assert "XDG_STATE_HOME" in str(error.value.hint)


class TwoArguments(Exception):
    """An error that pickles, and cannot be unpickled: its text is its only argument then."""

    def __init__(self, name: str, code: int) -> None:
        super().__init__(f"{name} {code}")


def test_a_result_that_cannot_be_unpickled_names_its_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "require_ray", lambda: None)
    monkeypatch.setattr(launcher, "_pickle_call", lambda *_: b"")
    results = [pickle.dumps(1), None, pickle.dumps(TwoArguments("x", 4))]
    monkeypatch.setattr(launcher, "launch_job", lambda *_: results)
    with pytest.raises(ds.ConversionError, match=r"the result of rank 2 cannot be unpickled here: TypeError") as error:
        ds.launch(print)
    assert isinstance(error.value.__cause__, TypeError)
    results.pop()
    assert ds.launch(print) == [1, None]
