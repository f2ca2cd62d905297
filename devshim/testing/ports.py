"""A free port for the tests of processes that connect to each other."""

from __future__ import annotations

import errno
import secrets
import socket

__all__ = ["free_port"]

_FIRST, _COUNT = 20_000, 12_000
"""Systems give ports above these to connections that ask for any: Linux those from 32768 on."""


def free_port() -> int:
    """Return a port of this machine that is free, and that no program gets in the meantime that asks for any port."""
    while True:
        port = _FIRST + secrets.randbelow(_COUNT)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                    raise
            else:
                return port
