"""Tests of what the launcher makes of Ray's errors about agents: made-up agents, and a module in place of Ray."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import devshim as ds
from devshim.world import lost_agents
from devshim.world.cluster import Host
from devshim.world.job import Job
from devshim.world.watching import Attempt


class RayError(Exception):
    """The root of Ray's errors."""


class ActorUnavailableError(RayError):
    """An agent cannot be reached now."""


class ActorDiedError(RayError):
    """An agent has ended."""


class NodeDiedError(RayError):
    """A host has ended."""


class Answer:
    """An answer of an agent: its events, an error, or None while it has none."""

    def __init__(self, value: Any) -> None:
        self.value = value


def end(rank: int, status: int = 0) -> tuple[Any, ...]:
    """Return the event of a rank that has ended."""
    return ("end", rank, status, "", "train.py:3 in job", None, 7, True, "")


UNREACHABLE = ActorUnavailableError("The actor is unavailable: keepalive watchdog timeout")
DIED = ActorDiedError("The actor died unexpectedly.\nThe actor is dead because its worker process was killed.")
NODE = ActorDiedError("The actor died unexpectedly.\nThe actor died because its node has died. Node Id: b")


@pytest.fixture
def alive(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Replace Ray with a small module, and return the nodes that it reports."""
    nodes, ray, exceptions = {"a", "b"}, ModuleType("ray"), ModuleType("ray.exceptions")
    for each in (RayError, ActorUnavailableError, ActorDiedError, NodeDiedError):
        setattr(exceptions, each.__name__, each)

    def get(answer: Answer) -> Any:
        if isinstance(answer.value, Exception):
            raise answer.value
        return answer.value

    def wait(asked: list[Answer], **_: Any) -> tuple[list[Answer], list[Answer]]:
        time.sleep(0.01)
        return [each for each in asked if each.value is not None], [each for each in asked if each.value is None]

    for name, value in {"get": get, "wait": wait, "exceptions": exceptions}.items():
        setattr(ray, name, value)
    ray.nodes = lambda: [{"NodeID": name, "Alive": True} for name in nodes]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setitem(sys.modules, "ray.exceptions", exceptions)
    return nodes


def follow(answer: Callable[[int, int], Any]) -> Attempt:
    """Let the launcher watch two hosts of one rank, whose agents answer by ``answer(index, received)``."""
    hosts = [Host(name, name, "127.0.0.1", 0, False) for name in ("a", "b")]
    attempt = Attempt(Job(), hosts, [1, 1], 0, lambda *_: None)
    attempt.agents = [
        SimpleNamespace(
            news=SimpleNamespace(remote=lambda _, received, i=i: Answer(answer(i, received))),
            where=SimpleNamespace(remote=lambda: Answer({})),
        )
        for i in (0, 1)
    ]
    attempt.follow()
    return attempt


def answers(*second: Any) -> Callable[[int, int], Any]:
    """Return answers: of the first agent that its rank has ended, and of the second these."""
    left = list(second)

    def answer(index: int, received: int) -> Any:
        if index == 0:
            return [end(0)] if received == 0 else None
        return left.pop(0) if len(left) > 1 else left[0]

    return answer


@pytest.mark.usefixtures("alive")
def test_an_agent_that_answers_again_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_agents, "_AGAIN", 100.0)
    assert set(follow(answers(UNREACHABLE, UNREACHABLE, [end(1)])).results) == {0, 1}


@pytest.mark.usefixtures("alive")
def test_an_agent_that_does_not_answer_again_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_agents, "_AGAIN", 0.3)
    with pytest.raises(ds.HostLostError, match="rank 1 on b was lost with its host"):
        follow(answers(UNREACHABLE))


@pytest.mark.usefixtures("alive")
def test_a_host_that_is_unreachable_while_a_peer_fails_is_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_agents, "_AGAIN", 100.0)
    left = iter([UNREACHABLE])
    with pytest.raises(ds.HostLostError, match="rank 1 on b was lost with its host"):
        follow(lambda index, received: ([end(0, 1)] if received == 0 else None) if index == 0 else next(left, None))


@pytest.mark.parametrize("error", [NODE, NodeDiedError("gone")])
def test_a_node_that_has_died_is_a_lost_host(alive: set[str], error: Exception) -> None:
    with pytest.raises(ds.HostLostError, match="rank 1 on b was lost with its host"):
        follow(answers(error))


def test_an_agent_that_ended_alone_is_no_lost_host(alive: set[str]) -> None:
    with pytest.raises(
        ds.WorldError, match="the agent of b, which runs rank 1 on b, has failed: The actor is"
    ) as caught:
        follow(answers(DIED))
    assert type(caught.value) is ds.WorldError
    alive.remove("b")
    with pytest.raises(ds.HostLostError):
        follow(answers(DIED))


def test_a_host_that_dies_after_its_agent_is_lost(alive: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_agents, "_UNTIL_DEAD", 100.0)
    asked = []

    def nodes() -> list[dict[str, Any]]:
        asked.append(alive)
        return [{"NodeID": "b", "Alive": len(asked) < 3}]

    monkeypatch.setattr(sys.modules["ray"], "nodes", nodes)
    with pytest.raises(ds.HostLostError, match="rank 1 on b was lost with its host"):
        follow(answers(DIED))


@pytest.mark.usefixtures("alive")
@pytest.mark.parametrize(
    ("tail", "said"),
    [
        ("", "rank 0 on a ended with exit status 3, and was last at train.py:3 in job"),
        ("RuntimeError: Connection closed by peer\n", "the agent of b, which runs rank 1 on b, has failed"),
    ],
)
def test_an_agent_that_ends_after_a_rank_failed_is_not_the_cause(tail: str, said: str) -> None:
    failed = (
        "end",
        0,
        3,
        f"Traceback (most recent call last):\n{tail}" if tail else "",
        "train.py:3 in job",
        None,
        7,
        True,
        "",
    )
    with pytest.raises(ds.WorldError, match=said):
        follow(lambda index, received: ([failed] if received == 0 else None) if index == 0 else DIED)


@pytest.mark.usefixtures("alive")
def test_an_agent_that_is_unreachable_at_the_start_is_called_again(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = [Host(name, name, "127.0.0.1", 0, False) for name in ("a", "b")]
    attempt = Attempt(Job(), hosts, [1, 1], 0, lambda *_: None)
    calls = {"a": [["here"]], "b": [UNREACHABLE, UNREACHABLE, ["there"]]}
    answers = [lambda name=name: Answer(calls[name].pop(0)) for name in calls]
    monkeypatch.setattr(lost_agents, "_AGAIN", 100.0)
    assert attempt._wait_for_answers(answers) == [["here"], ["there"]]
    assert calls == {"a": [], "b": []}  # the one that has answered is not called twice
    monkeypatch.setattr(lost_agents, "_AGAIN", 0.2)
    with pytest.raises(ds.HostLostError, match="rank 1 on b was lost with its host"):
        attempt._wait_for_answers([lambda: Answer(["here"]), lambda: Answer(UNREACHABLE)])


@pytest.mark.usefixtures("alive")
def test_the_start_of_agents_that_are_called_again_has_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = Attempt(Job(start_timeout=60.0), [Host("a", "a", "127.0.0.1", 0, False)], [1], 0, lambda *_: None)
    limits, now = [], [100.0]

    def wait(asked: list[Answer], *, timeout: float, **_: Any) -> tuple[list[Answer], list[Answer]]:
        limits.append(timeout)
        now[0] += 50  # an answer that takes long
        return asked, []

    monkeypatch.setattr(sys.modules["ray"], "wait", wait)
    monkeypatch.setattr(lost_agents, "_AGAIN", 1000.0)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    left = [UNREACHABLE, UNREACHABLE, ["here"]]
    assert attempt._wait_for_answers([lambda: Answer(left.pop(0))]) == [["here"]]
    assert limits == [60, 10, 0]


class Later(Answer):
    """An answer that comes after some seconds."""

    def __init__(self, value: Any, seconds: float) -> None:
        self._made, self._until = value, time.monotonic() + seconds

    @property
    def value(self) -> Any:  # type: ignore[override]
        return self._made if time.monotonic() >= self._until else None


@pytest.mark.usefixtures("alive")
def test_a_rank_that_ends_well_after_an_error_leaves_the_next_ones_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[Attempt.__module__], "_ENDING", 1.0)
    peer, own = (f"Traceback (most recent call last):\n{each}\n" for each in ("Connection reset", "ValueError: own"))
    answers = {
        0: [lambda: Answer([("raised", 0, peer, "")]), lambda: Answer([end(0)]), lambda: Answer(None)],
        1: [
            lambda: Later([("end", 1, 1, peer, "", None, 7, True, "")], 1.2),
            lambda: Later([("end", 2, 1, own, "", None, 7, True, "")], 0.2),
            lambda: Answer(None),
        ],
    }
    hosts = [Host(name, name, "127.0.0.1", 0, False) for name in ("a", "b")]
    attempt = Attempt(Job(), hosts, [1, 2], 0, lambda *_: None)
    attempt.agents = [
        SimpleNamespace(
            news=SimpleNamespace(remote=lambda *_, i=i: answers[i].pop(0)()),
            where=SimpleNamespace(remote=lambda: Answer({})),
        )
        for i in (0, 1)
    ]
    with pytest.raises(ds.RankFailedError, match="rank 2 on b ended with exit status 1: ValueError: own"):
        attempt.follow()
