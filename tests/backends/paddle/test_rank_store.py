"""Tests of the store by which PaddlePaddle's process groups find each other, with PaddlePaddle's own client."""

from __future__ import annotations

import errno
import os
import socket
import threading

import pytest
from listening import is_loopback, listening

from devshim.registry import registry

registry.load("paddle")  # imports Paddle without its warnings
from devshim_backends._paddle.devices import core  # noqa: E402
from devshim_backends._paddle.internals.rank_store import Store  # noqa: E402


def test_paddles_client_and_the_store_understand_each_other() -> None:
    before = listening({os.getpid()})
    store = Store("127.0.0.1", 20.0)
    assert all(map(is_loopback, listening({os.getpid()}) - before))
    first, second = (core.TCPStore("127.0.0.1", store.port, False, 2, 20) for _ in range(2))
    threading.Timer(0.2, lambda: second.set("a", "some words")).start()
    first.wait("a")
    assert bytes(first.get("a")) == b"some words"
    assert [first.add("n", 2), second.add("n", 3), first.add("n", 0)] == [2, 5, 5]
    store.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", store.port))


@pytest.mark.parametrize(
    "word", [b"", b"GET / HTTP/1.1\r\n\r\n", b"\x03\0\0\0" + b"\xff" * 8, b"\x09\0\0\0" + b"\0" * 8]
)
def test_a_stranger_is_cut_off(word: bytes) -> None:
    store = Store("127.0.0.1", 0.2)
    with socket.create_connection(("127.0.0.1", store.port)) as stranger:
        stranger.settimeout(20)
        answer, number = b"", 0
        try:
            stranger.sendall(word)
            stranger.shutdown(socket.SHUT_WR)
            answer = stranger.recv(10)
        except OSError as error:
            number = error.errno
        assert answer == b""
        assert number in (0, errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN)  # cut off before it has sent or read all
    store.close()
