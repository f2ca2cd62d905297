"""Tests of the arguments of `ds.launch`, which are checked before a process starts."""

from __future__ import annotations

from typing import Any

import pytest

import devshim as ds
from devshim.world import cluster, job


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
