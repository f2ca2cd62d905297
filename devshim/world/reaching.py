"""A check that a Ray cluster answers at an address, before Ray itself connects: Ray waits there without a limit.

It opens a connection and greets by HTTP/2, the protocol of Ray's control process, whose server answers at once with its
settings. Another server, a process that is stopped, and a network that drops packets do not. With ``RAY_USE_TLS``, the
server does not answer a plain greeting, so an open port is enough.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from typing import TYPE_CHECKING

from devshim.errors import ArgumentError, RankLateError, WorldError

if TYPE_CHECKING:
    from devshim.contract.ranks import Place

__all__ = ["require_cluster", "split_address", "unconnected_error"]

_LONGEST = 10.0
"""The maximum number of seconds; a lost packet of a new connection is sent again after 1 and after 3 seconds."""
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""The preface of an HTTP/2 client (RFC 9113, section 3.4): a fixed text, and a frame of settings without any."""
_HEAD, _SETTINGS = 9, 4
"""The number of bytes before the content of a frame, the fourth of which is its type; and the type of settings."""
_AUTO = "auto"
"""The address by which Ray finds a cluster of this machine; Ray itself sees whether it runs."""


def split_address(address: str) -> tuple[str, int]:
    """Return the host and the port of an address such as ``10.0.0.1:6379``.

    Raises:
        ArgumentError: The address does not have this form.
    """
    host, _, port = address.rpartition(":")
    if not host or not (port.isdecimal() and 0 < int(port) < 65536):
        msg = f"{address!r} is not the address of a cluster"
        raise ArgumentError(
            msg, "write the host and the port, such as 10.0.0.1:6379; `devshim cluster start` prints them"
        )
    return host.removeprefix("[").removesuffix("]"), int(port)


def require_cluster(address: str, seconds: float) -> None:
    """Return if a Ray cluster answers at an address.

    Args:
        address: Its host and port.
        seconds: How long to wait for the answer; at most ten seconds.

    Raises:
        ArgumentError: The address does not have this form.
        WorldError: No cluster answers.
    """
    if address == _AUTO:
        return
    host, port = split_address(address.removeprefix("ray://"))
    seconds = min(seconds, _LONGEST)
    reasons: list[str] = []
    # In a thread: the system looks up the name of a host without a limit.
    asking = threading.Thread(target=lambda: reasons.append(_why_silent(host, port, seconds)), daemon=True)
    asking.start()
    asking.join(seconds + 0.1)
    reason = reasons[0] if reasons else _no_answer(seconds)
    if reason:
        msg = f"no Ray cluster answers at {address}: {reason}"
        raise WorldError(msg, "see whether it runs, and whether the address is right: DEVSHIM_RAY_ADDRESS names it")


def _why_silent(host: str, port: int, seconds: float) -> str:
    """Return why no cluster answers; empty if one does."""
    until = time.monotonic() + seconds
    try:
        with socket.create_connection((host, port), seconds) as connection:
            if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
                return ""
            connection.sendall(_GREETING)
            answer = b""
            while len(answer) < _HEAD:
                connection.settimeout(max(until - time.monotonic(), 0.001))
                part = connection.recv(_HEAD - len(answer))
                if not part:
                    break
                answer += part
    except TimeoutError:
        return _no_answer(seconds)
    except OSError as error:
        return (error.strerror or str(error)).lower()
    is_settings = len(answer) == _HEAD and answer[3] == _SETTINGS
    return "" if is_settings else "another program listens there"


def _no_answer(seconds: float) -> str:
    return f"nothing has answered in {seconds:g} s"


def unconnected_error(place: Place, began: float, late: list[int]) -> RankLateError:
    """Return the error for ranks that have not started or joined Ray in time."""
    waited, has = f"{time.monotonic() - began:.0f} s", "have" if len(late) > 1 else "has"
    msg = f"{place.name_rank(place.rank)} has waited {waited}: {place.list_ranks(late)} {has} not connected to Ray"
    error = RankLateError(msg, "see whether each rank was started, and makes a call of ds.world()")
    error.waiting, error.late = (place.rank,), tuple(late)
    return error
