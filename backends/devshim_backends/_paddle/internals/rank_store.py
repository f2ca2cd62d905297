"""A key-value store that PaddlePaddle's process groups use to find each other, only at one address of the host.

PaddlePaddle's own, `TCPStore` in rank 0, always listens on all addresses: its C++ code does not bind to one. So this
store replaces it in rank 0, and all ranks are clients. They use the protocol of `paddle/phi/core/distributed/store/` of
3.0 to 3.3: a command as an int32, a key after its length as a uint64, and the arguments of the command.
"""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress

__all__ = ["Store"]

_ADD, _GET, _CHECK, _SET, _WAIT = range(5)
_STOP_WAIT, _READY, _NOT_READY = 1, 2, 3
_MOST = 2**20  # bytes of a key or value; those of gloo are some hundred


class Store:
    """The store; threads of this process answer.

    Args:
        address: Where it listens.
        patience: How long a rank waits for a key, in seconds; then its connection is closed.

    Attributes:
        port: The port on which it listens.
    """

    def __init__(self, address: str, patience: float) -> None:
        self._patience = patience
        self._values: dict[bytes, bytes] = {}
        self._changed = threading.Condition()
        self._server = socket.create_server((address, 0))
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._accept, name="devshim-paddle-store", daemon=True).start()

    def close(self) -> None:
        """Stop accepting connections."""
        with suppress(OSError):  # already closed
            self._server.shutdown(socket.SHUT_RDWR)  # ends the thread that accepts, which keeps the socket open
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                peer = self._server.accept()[0]
            except OSError:  # closed
                return
            threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        """Answer one rank until it leaves."""
        with peer:
            try:
                while True:
                    (command,) = struct.unpack("i", _read(peer, 4))
                    peer.sendall(self._answer(peer, command, _read_field(peer)))
            except (OSError, EOFError, ValueError):
                return

    def _answer(self, peer: socket.socket, command: int, key: bytes) -> bytes:
        """Do what a rank asks for, and return what it expects.

        Raises:
            ValueError: There is no such command, number or key.
            TimeoutError: A key did not arrive.
        """
        values, changed = self._values, self._changed
        if command == _SET:
            value = _read_field(peer)
            with changed:
                values[key] = value
                changed.notify_all()
            return b""
        if command == _ADD:
            (more,) = struct.unpack("q", _read(peer, 8))
            with changed:
                total = int(values.get(key, b"0")) + more
                values[key] = str(total).encode()
                changed.notify_all()
            return struct.pack("q", total)
        if command == _CHECK:
            return struct.pack("i", _READY if key in values else _NOT_READY)
        if command not in (_WAIT, _GET):
            raise ValueError(command)
        with changed:
            if not changed.wait_for(lambda: key in values, self._patience):
                raise TimeoutError(key)
            value = values[key]
        return struct.pack("i", _STOP_WAIT) if command == _WAIT else struct.pack("Q", len(value)) + value


def _read(peer: socket.socket, count: int) -> bytes:
    """Return ``count`` bytes of a connection.

    Raises:
        EOFError: It has ended.
    """
    found = b""
    while len(found) < count:
        part = peer.recv(count - len(found))
        if not part:
            raise EOFError
        found += part
    return found


def _read_field(peer: socket.socket) -> bytes:
    """Return a key or a value: its length, and then as many bytes.

    Raises:
        ValueError: There are too many.
    """
    (length,) = struct.unpack("Q", _read(peer, 8))
    if length > _MOST:
        raise ValueError(length)
    return _read(peer, length)
