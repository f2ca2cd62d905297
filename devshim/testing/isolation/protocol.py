"""The messages between the main process and a backend's process: plain values, each preceded by its length.

The format is `marshal`: both ends run the same interpreter, it preserves tuples, which pytest distinguishes from lists,
and reading it never needs an import.
"""

from __future__ import annotations

import marshal
import select
import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket

__all__ = ["Channel", "plain"]

_LENGTH = struct.Struct("<Q")
_AT_ONCE = 1 << 16


class Channel:
    """One end of a socket that carries messages."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._received = bytearray()

    def send(self, *message: Any) -> None:
        """Send a message; raises `OSError` if the other end is closed."""
        content = marshal.dumps(plain(message))
        self._end.sendall(_LENGTH.pack(len(content)) + content)

    def receive(self, seconds: float | None = None) -> tuple[Any, ...] | None:
        """Return the next message, or None after this many seconds without one.

        Raises:
            EOFError: The other end is closed, and has sent nothing more.
        """
        while (message := self._complete_message()) is None:
            if not select.select([self._end], [], [], seconds)[0]:
                return None
            try:
                more = self._end.recv(_AT_ONCE)
            except ConnectionResetError:  # it ended before it read everything that this side sent
                more = b""
            if not more:
                raise EOFError
            self._received += more
        return message

    def close(self) -> None:
        """Close this end."""
        self._end.close()

    def _complete_message(self) -> tuple[Any, ...] | None:
        """Return the first message, if all of it has arrived."""
        if len(self._received) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._received)
        end = _LENGTH.size + length
        if len(self._received) < end:
            return None
        content = bytes(self._received[_LENGTH.size : end])
        del self._received[:end]
        message: tuple[Any, ...] = marshal.loads(content)
        return message


def plain(value: Any) -> Any:
    """Return a value made of plain built-in types; any other object is replaced by its text."""
    if value is None or type(value) in (bool, int, float, str, bytes):
        return value
    if isinstance(value, dict):
        return {plain(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        made = [plain(each) for each in value]
        return tuple(made) if isinstance(value, tuple) else made
    return str(value)
