"""Tests of the watch over the control process of a cluster, with a server in its place."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

import pytest

import devshim as ds
from devshim.testing.ports import free_port
from devshim.world import control
from devshim.world.control import ControlProcess

SETTINGS = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))


def serve(server: socket.socket) -> None:
    """Greet like Ray's control process until the server is closed."""
    with suppress(OSError):
        while True:
            with server.accept()[0] as peer:
                peer.recv(1000)
                peer.sendall(SETTINGS)


def test_a_control_process_that_ends_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "_INTERVAL", 0.05)
    monkeypatch.setattr(control, "_AGAIN", 0.1)
    lost = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        threading.Thread(target=serve, args=(server,), daemon=True).start()
        watched = ControlProcess(address, lost.set)
        watched.watch()
        watched.require()
        assert not lost.wait(0.3)
        server.shutdown(socket.SHUT_RDWR)
    assert lost.wait(10)
    assert watched.is_lost
    said = f"the cluster at {address} has ended, or its first machine is unreachable: connection refused"
    with pytest.raises(ds.WorldError, match=said):
        watched.require()


def test_a_control_process_that_answers_again_has_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray can start it again, and then goes on with the job."""
    monkeypatch.setattr(control, "_AGAIN", 100.0)
    port = free_port()
    opened: list[socket.socket] = []

    def begin() -> None:
        opened.append(socket.create_server(("127.0.0.1", port)))
        serve(opened[0])

    later = threading.Timer(0.5, begin)
    later.start()
    ControlProcess(f"127.0.0.1:{port}", lambda: None).require()
    opened[0].shutdown(socket.SHUT_RDWR)
    opened[0].close()
    later.join()
