"""The rendezvous of the ranks of a job before an engine starts, for engines that cannot be made to give up.

A framework's own start waits for minutes if a rank never comes (TensorFlow, PaddlePaddle), or ends the process (JAX).
So all ranks first meet by plain sockets at the address of the job: then all are there, and know what each has said,
such as the port on which it will listen, or why it cannot start.
"""

from __future__ import annotations

import json
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from devshim.contract.rank_engines import collective_timeout, engine_address

if TYPE_CHECKING:
    from devshim.contract.ranks import Place

__all__ = ["AbsentError", "Rendezvous", "wait_for_server"]

_MOST = 4096  # the maximum bytes of a rank's message
_AGAIN = 0.02  # seconds until the next attempt to reach rank 0
_ALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4}
_HELLO = 2.0  # seconds for a connection to say its rank: strangers may connect, too


class AbsentError(Exception):
    """Ranks that did not reach the rendezvous in time, with their numbers."""

    def __init__(self, ranks: list[int]) -> None:
        super().__init__(f"ranks {ranks} did not connect")
        self.ranks = ranks


class Rendezvous:
    """Sockets between rank 0, which listens only at the address of the job, and each other rank.

    Args:
        place: The place of this rank.
        says: What this rank says to all; JSON.

    Attributes:
        said: What each rank says, in the order of the ranks.

    Raises:
        AbsentError: A rank did not arrive in time.
        ArgumentError: The launcher names no address.
    """

    def __init__(self, place: Place, says: Any) -> None:
        self._place = place
        self._until = time.monotonic() + collective_timeout(place)
        self._peers: dict[int, socket.socket] = {}
        self.said: list[Any] = []
        try:
            self.said = self._gather(says) if place.rank == 0 else self._join(says)
        except BaseException:
            self.close()
            raise

    def wait(self) -> None:
        """Wait until each of the others has closed its socket; for rank 0.

        The system closes it when a process ends; a host that is lost is known after about half a minute.
        """
        for peer in self._peers.values():
            with suppress(OSError):
                peer.settimeout(None)
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                for option, seconds in _ALIVE.items():
                    if hasattr(socket, option):
                        peer.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), seconds)
                peer.recv(1)

    def close(self) -> None:
        """Close the sockets."""
        for each in self._peers.values():
            each.close()

    def _gather(self, says: Any) -> list[Any]:
        """Wait for the others, tell all what each has said, and return it."""
        size = self._place.size
        said: dict[int, Any] = {0: says}
        with socket.create_server(engine_address(self._place), backlog=size) as server:
            while len(said) < size and self._seconds_left() > 0:
                server.settimeout(max(self._seconds_left(), 0.001))
                with suppress(OSError):
                    peer = server.accept()[0]
                    rank, word = _read_introduction(peer)
                    if rank in range(1, size) and rank not in said:
                        said[rank], self._peers[rank] = word, peer
                    else:
                        peer.close()
        absent = [rank for rank in range(size) if rank not in said]
        ordered = [said.get(rank) for rank in range(size)]
        for peer in self._peers.values():
            with suppress(OSError):
                peer.sendall(json.dumps({"absent": absent, "said": ordered}).encode() + b"\n")
        if absent:
            raise AbsentError(absent)
        return ordered

    def _join(self, says: Any) -> list[Any]:
        """Reach rank 0, and return what all say."""
        while True:
            try:
                peer = self._peers[0] = socket.create_connection(
                    engine_address(self._place), max(self._seconds_left(), 0.001)
                )
                peer.sendall(json.dumps({"rank": self._place.rank, "says": says}).encode() + b"\n")
                peer.settimeout(max(self._seconds_left(), 0.001) + _HELLO)
                found = json.loads(_line(peer))
                break
            except OSError:
                if self._seconds_left() <= 0:
                    raise AbsentError([0]) from None
                time.sleep(_AGAIN)
            except ValueError:  # it has ended
                raise ConnectionError("rank 0 has aborted the start") from None
        if found["absent"]:
            raise AbsentError(found["absent"])
        said: list[Any] = found["said"]
        return said

    def _seconds_left(self) -> float:
        return self._until - time.monotonic()


def wait_for_server(place: Place) -> None:
    """Wait until rank 0 listens at the address of the job.

    Raises:
        AbsentError: It does not in time.
        ArgumentError: The launcher names no address.
    """
    until = time.monotonic() + collective_timeout(place)
    while True:
        try:
            with socket.create_connection(engine_address(place), max(until - time.monotonic(), 0.001)):
                return
        except OSError:
            if time.monotonic() > until:
                raise AbsentError([0]) from None
            time.sleep(_AGAIN)


def _read_introduction(peer: socket.socket) -> tuple[int, Any]:
    """Return the number of the rank that has connected, and what it says; -1 for a stranger."""
    peer.settimeout(_HELLO)
    try:
        found = json.loads(_line(peer))
        return int(found["rank"]), found["says"]
    except (OSError, ValueError, KeyError, TypeError):
        return -1, None


def _line(peer: socket.socket) -> bytes:
    """Return what a peer sends until the end of a line; less if it ends."""
    found = b""
    while not found.endswith(b"\n"):
        part = peer.recv(_MOST)
        if not part:
            return b""
        found += part
        if len(found) > _MOST * 64:
            raise OSError("too long")
    return found
