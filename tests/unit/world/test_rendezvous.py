"""Tests of the rendezvous of ranks before an engine starts: what it answers, strangers, and ranks that do not come."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from devshim.contract import rank_rendezvous
from devshim.contract.rank_rendezvous import AbsentError, Rendezvous, wait_for_server
from devshim.contract.ranks import Place
from devshim.testing.ports import free_port


def met(size: int, ranks: list[int], port: int, job: Callable[[Rendezvous], Any] = lambda each: each.said) -> Any:
    """Let ranks that are threads meet, and return what each has got, or its error."""
    found: dict[int, Any] = {}

    def run(rank: int) -> None:
        try:
            rendezvous = Rendezvous(Place(rank=rank, size=size, engine_address=f"127.0.0.1:{port}"), f"I am {rank}")
            found[rank] = job(rendezvous)
            rendezvous.close()
        except Exception as error:
            found[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in ranks]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
    return found


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0]])
def test_all_ranks_know_what_each_has_said(order: list[int]) -> None:
    said = ["I am 0", "I am 1", "I am 2"]
    assert met(3, order, free_port()) == dict.fromkeys(range(3), said)


def test_ranks_that_do_not_come_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_rendezvous, "collective_timeout", lambda place: 0.5)
    for ranks, absent in (([0, 2], [1, 3]), ([1, 2], [0])):
        for error in met(4, ranks, free_port()).values():
            assert isinstance(error, AbsentError)
            assert error.ranks == absent


@pytest.mark.parametrize(
    "word", [b"", b"GET / HTTP/1.1\r\n\r\n", b'{"rank": 7}\n', b'{"rank": 0, "says": 1}\n', b"[]\n"]
)
def test_strangers_are_not_ranks(word: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_rendezvous, "_HELLO", 0.2)
    port = free_port()
    found: list[Any] = []
    rendezvous = threading.Thread(target=lambda: found.append(met(2, [0], port)))
    rendezvous.start()
    while True:
        try:
            stranger = socket.create_connection(("127.0.0.1", port))
            break
        except ConnectionRefusedError:
            time.sleep(0.01)
    with stranger:
        stranger.sendall(word)
        assert met(2, [1], port) == {1: ["I am 0", "I am 1"]}
    rendezvous.join(30)
    assert found == [{0: ["I am 0", "I am 1"]}]


def test_rank_0_waits_until_the_others_have_left() -> None:
    left: list[int] = []

    def job(rendezvous: Rendezvous) -> list[int]:
        if rendezvous._place.rank == 0:
            rendezvous.wait()
            return list(left)
        time.sleep(0.1 * rendezvous._place.rank)
        left.append(rendezvous._place.rank)
        return []

    assert met(3, [0, 1, 2], free_port(), job)[0] == [1, 2]


def test_a_rank_waits_for_a_server_that_starts_later(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    place = Place(rank=1, size=2, engine_address=f"127.0.0.1:{port}")
    opened: list[socket.socket] = []
    starting = threading.Timer(0.3, lambda: opened.append(socket.create_server(("127.0.0.1", port))))
    starting.start()
    wait_for_server(place)
    starting.join()
    opened[0].close()
    monkeypatch.setattr(rank_rendezvous, "collective_timeout", lambda place: 0.3)
    with pytest.raises(AbsentError) as error:
        wait_for_server(place)
    assert error.value.ranks == [0]
