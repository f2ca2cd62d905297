"""Tests of the check that a cluster answers, with servers that are none; Ray is not imported."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import devshim as ds
from devshim.contract.ranks import Place
from devshim.testing.ports import free_port
from devshim.world import local_ray, ray_peers, reaching
from devshim.world.ray_peers import RayPeers

SETTINGS = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))


@pytest.fixture
def serve() -> Iterator[Callable[[bytes | None], str]]:
    """Yield a function that starts a server with this answer, or one that never accepts, and returns its address."""
    with ExitStack() as opened:

        def start(answer: bytes | None) -> str:
            server = opened.enter_context(socket.create_server(("127.0.0.1", 0)))

            def once() -> None:
                peer = server.accept()[0]
                with peer:
                    assert peer.recv(1000).startswith(b"PRI * HTTP/2.0")
                    peer.sendall(answer or b"")

            if answer is not None:
                thread = threading.Thread(target=once)
                opened.callback(thread.join)
                thread.start()
            return f"127.0.0.1:{server.getsockname()[1]}"

        yield start


def test_a_server_of_http_2_may_be_a_cluster(serve: Callable[[bytes | None], str]) -> None:
    reaching.require_cluster(serve(SETTINGS + bytes(20)), 5)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (None, "nothing has answered in 0.5 s"),
        (b"", "another program listens there"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "another program listens there"),
    ],
)
def test_a_server_that_is_no_cluster_is_refused(
    serve: Callable[[bytes | None], str], answer: bytes | None, reason: str
) -> None:
    address = serve(answer)
    with pytest.raises(ds.WorldError) as caught:
        reaching.require_cluster(address, 0.5)
    assert caught.value.problem == f"no Ray cluster answers at {address}: {reason}"


STATUS = b"@\x0bgrpc-status"


@pytest.fixture
def called() -> Iterator[Callable[[bytes], tuple[str, list[bytes]]]]:
    """Yield a function that starts a server of HTTP/2, which answers a call; it returns its address and the calls."""
    with ExitStack() as opened:

        def start(answer: bytes) -> tuple[str, list[bytes]]:
            server = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
            calls: list[bytes] = []

            def once() -> None:
                with server.accept()[0] as peer:
                    assert peer.recv(1000).startswith(b"PRI * HTTP/2.0")
                    peer.sendall(SETTINGS)
                    calls.append(peer.recv(4000))
                    peer.sendall(answer)

            thread = threading.Thread(target=once)
            opened.callback(thread.join)
            thread.start()
            return f"127.0.0.1:{server.getsockname()[1]}", calls

        yield start


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (STATUS + b"\x010", ""),
        (STATUS + b"\x0212", ""),  # another version of Ray, which does not have this call
        (STATUS + b"\x0216", "the cluster at {address} refuses the token {token}"),
        (b"", "a server answers at {address}, but it has not accepted this process"),
    ],
)
def test_a_token_is_checked_before_ray_starts(
    called: Callable[[bytes], tuple[str, list[bytes]]], answer: bytes, said: str, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("secret" * 50 + "\n")
    address, calls = called(answer)
    if said:
        with pytest.raises(ds.WorldError) as caught:
            reaching.require_cluster(address, 5, token)
        assert caught.value.problem == said.format(address=address, token=token)
    else:
        reaching.require_cluster(address, 5, token)
    # 300 + 7 characters: 127, and 180 in groups of seven bits
    assert b"\rauthorization" + bytes((127, 180, 1)) + b"Bearer " + b"secret" * 50 in calls[0]


def test_a_cluster_that_does_not_answer_a_call_is_an_error_in_time(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=lambda: kept.append(server.accept()[0]) or kept[0].sendall(SETTINGS))
        kept: list[socket.socket] = []
        thread.start()
        with pytest.raises(ds.WorldError, match="but it has not accepted this process"):
            reaching.require_cluster(f"127.0.0.1:{server.getsockname()[1]}", 0.5, token)
        thread.join()
        kept[0].close()


def test_the_hint_names_what_gave_the_address() -> None:
    with pytest.raises(ds.WorldError) as caught:
        reaching.require_cluster(f"127.0.0.1:{free_port()}", 5, hint="see the argument")
    assert caught.value.hint == "see the argument"


def test_a_server_with_tls_gets_no_greeting(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would not answer one in plain text. Ray itself connects next, with the certificates."""
    monkeypatch.setenv("RAY_USE_TLS", "1")
    with socket.create_server(("127.0.0.1", 0)) as server:
        reaching.require_cluster(f"127.0.0.1:{server.getsockname()[1]}", 5)
        with server.accept()[0] as peer:
            assert peer.recv(1) == b""


@pytest.mark.parametrize("address", ["127.0.0.1:{}", "localhost:{}", "ray://127.0.0.1:{}"])
def test_an_address_at_which_nothing_listens_is_refused_at_once(address: str) -> None:
    address, began = address.format(free_port()), time.monotonic()
    with pytest.raises(ds.WorldError, match=f"no Ray cluster answers at {address}: connection refused"):
        reaching.require_cluster(address, 60)
    assert time.monotonic() - began < 5


def test_a_host_without_an_answer_takes_no_longer_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The look-up of a name has no limit of its own."""
    released = threading.Event()

    def look_up(*_: Any) -> None:
        released.wait(60)
        raise OSError

    monkeypatch.setattr(socket, "create_connection", look_up)
    began = time.monotonic()
    try:
        with pytest.raises(ds.WorldError, match=r"at far\.example:6379: nothing has answered in 0\.3 s"):
            reaching.require_cluster("far.example:6379", 0.3)
        assert time.monotonic() - began < 5
    finally:
        released.set()


@pytest.mark.parametrize("address", ["elsewhere", ":6379", "host:", "host:port", "host:0", "host:65536"])
def test_an_invalid_address_is_refused(address: str) -> None:
    with pytest.raises(ds.ArgumentError, match="is not the address of a cluster"):
        reaching.require_cluster(address, 5)


def test_ranks_of_another_launcher_do_not_wait_for_a_cluster_that_does_not_run(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    token.touch(mode=0o600)
    monkeypatch.setattr(os, "environ", {**os.environ, "RAY_AUTH_TOKEN_PATH": str(token)})
    os.environ["DEVSHIM_RAY_ADDRESS"] = f"127.0.0.1:{free_port()}"
    with pytest.raises(ds.WorldError, match="no Ray cluster answers"):
        RayPeers(Place(rank=1, size=2, launcher="torchrun", one_host=False))


def test_a_rank_does_not_wait_for_the_ray_of_a_rank_0_that_was_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {"address": f"127.0.0.1:{free_port()}", "token": "secret"}
    monkeypatch.setattr(local_ray, "_wait_for", lambda *_: facts)
    with pytest.raises(ds.WorldError, match="no Ray cluster answers"):
        local_ray.join(lambda: pytest.fail("it connects"), Place(rank=1, size=2), {})


def test_a_rank_of_the_launcher_leaves_a_lost_cluster_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits in Ray: the launcher knows which host was lost, and ends the rank."""

    class Waiting(Exception):
        pass

    def connect(place: Place) -> Any:
        raise Waiting

    monkeypatch.setattr(ray_peers, "_import_ray", connect)
    monkeypatch.setenv("DEVSHIM_JOB", "a job")
    monkeypatch.setenv("DEVSHIM_RAY", f"127.0.0.1:{free_port()}")
    with pytest.raises(Waiting):
        RayPeers(Place(rank=1, size=2, launcher="devshim", one_host=False))


LATE = r"rank 1 on host1 has waited \d s: rank {} on host{} {} not connected to Ray"


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let ranks wait for a part of a second, and exchange addresses in a folder of the test."""
    monkeypatch.setattr(local_ray, "collective_timeout", lambda place: 0.2)
    monkeypatch.setattr(ray_peers, "collective_timeout", lambda place: 0.2)
    monkeypatch.setattr(local_ray, "_folder", lambda: tmp_path)


@pytest.mark.usefixtures("short")
def test_a_rank_0_that_never_starts_ray_is_late() -> None:
    place = Place(rank=1, size=2, hosts=("host0", "host1"))
    with pytest.raises(ds.RankLateError, match=LATE.format(0, 0, "has")) as error:
        local_ray.join(lambda: pytest.fail("it connects"), place, {})
    assert (error.value.waiting, error.value.late) == ((1,), (0,))


@pytest.mark.usefixtures("short")
def test_a_rank_0_that_is_starting_ray_is_not_late(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "facts.json"
    local_ray.write_facts(file, {})
    facts = {"address": "somewhere"}
    writer = threading.Timer(0.6, local_ray.write_facts, (file, facts))
    writer.start()
    assert local_ray._wait_for(file, Place(rank=1, size=2)) == facts
    writer.join()
    local_ray.write_facts(file, {})
    monkeypatch.setattr(local_ray, "_STARTING", 0.1)
    with pytest.raises(ds.WorldError, match="rank 0, which starts Ray"):
        local_ray._wait_for(file, Place(rank=1, size=2))


@pytest.mark.usefixtures("short")
def test_ranks_that_never_connect_to_ray_are_late(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ray:
        ended = False

        def get_actor(self, name: str) -> str:
            if name in ("rank0", "rank1"):
                return name
            raise ValueError(name)

        def shutdown(self) -> None:
            self.ended = True

    ray = Ray()
    monkeypatch.setattr(RayPeers, "_connect", lambda self: ray)
    monkeypatch.setattr(RayPeers, "_start_store", lambda self: True)
    place = Place(rank=1, size=4, hosts=("host0", "host1", "host2", "host3"), launcher="mpirun")
    with pytest.raises(ds.RankLateError, match=r"rank 2 on host2(,| and) rank 3 on host3 have not connected") as error:
        RayPeers(place)
    assert (error.value.waiting, error.value.late, ray.ended) == ((1,), (2, 3), True)
