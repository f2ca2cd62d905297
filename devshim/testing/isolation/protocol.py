"""The messages between the main process and a backend's process, over a `multiprocessing.connection.Connection`.

Every message is a tuple of built-in plain values, so reading one never imports anything, in particular no framework.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

__all__ = ["plain", "receive", "send"]


def send(connection: Connection, *message: Any) -> None:
    """Send a message; raises `OSError` if the other end is closed."""
    connection.send(plain(message))


def receive(connection: Connection, seconds: float | None = None) -> tuple[Any, ...] | None:
    """Return the next message, or None after this many seconds without one.

    Raises:
        EOFError: The other end is closed, and has sent nothing more.
    """
    try:
        return connection.recv() if connection.poll(seconds) else None
    except ConnectionResetError as error:  # it ended before it read everything that this side sent
        raise EOFError from error


def plain(value: Any) -> Any:
    """Return a value made of plain built-in types; any other object is replaced by its text."""
    if value is None or type(value) in (bool, int, float, str, bytes):
        return value
    if isinstance(value, dict):
        return {plain(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        items = [plain(each) for each in value]
        return tuple(items) if isinstance(value, tuple) else items
    return str(value)
