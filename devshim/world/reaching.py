"""A check that a Ray cluster answers at an address, before Ray itself connects: Ray waits there without a limit.

It opens a connection and greets by HTTP/2, the protocol of Ray's control process, whose server answers at once with its
settings. Another server, a process that is stopped, and a network that drops packets do not. Then it makes a call with
the token: Ray itself would repeat one that is refused, and print that each time. With ``RAY_USE_TLS``, the server does
not answer a plain greeting, so an open port is enough.
"""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from devshim.errors import ArgumentError, RankLateError, WorldError

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.contract.ranks import Place

__all__ = ["require_cluster", "split_address", "unconnected_error", "why_silent"]

_LONGEST = 10.0
"""The maximum number of seconds; a lost packet of a new connection is sent again after 1 and after 3 seconds."""
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""The preface of an HTTP/2 client (RFC 9113, section 3.4): a fixed text, and a frame of settings without any."""
_HEAD = 9
"""The number of bytes before the content of a frame, the fourth of which is its type."""
_DATA, _HEADERS, _SETTINGS = 0, 1, 4
_END_STREAM, _END_HEADERS = 1, 4
_STATUS, _UNAUTHENTICATED = re.compile(rb"grpc-status[\x01\x02](\d+)"), b"16"
"""The field with which a gRPC server ends its answer, after which comes the length of the number; and that number."""
_REFUSED, _UNDECIDED = "the token is refused", "no answer to a call"
_HINT = "see whether it runs, and whether the address is right: DEVSHIM_RAY_ADDRESS names it"
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


def require_cluster(address: str, seconds: float, token: Path | None = None, hint: str = _HINT) -> None:
    """Return if a Ray cluster answers at an address, and accepts the token.

    Args:
        address: Its host and port.
        seconds: How long to wait for the answer; at most ten seconds.
        token: The file of its token; None to only see whether a cluster answers.
        hint: What to do if none answers.

    Raises:
        ArgumentError: The address does not have this form.
        WorldError: No cluster answers, or it refuses the token.
    """
    if address == _AUTO:
        return
    reason = why_silent(address, seconds, _read(token))
    if reason == _REFUSED:
        msg = f"the cluster at {address} refuses the token {token}"
        raise WorldError(msg, "copy the token again: each `devshim cluster start` makes a new one")
    if reason == _UNDECIDED:
        msg = f"a server answers at {address}, but it has not accepted this process"
        raise WorldError(msg, f"see whether it is a Ray cluster, and whether {token} is its token")
    if reason:
        msg = f"no Ray cluster answers at {address}: {reason}"
        raise WorldError(msg, hint)


def _read(token: Path | None) -> str:
    """Return the token that Ray will send; empty without one."""
    if token is None:
        return ""
    with suppress(OSError):
        return os.environ.get("RAY_AUTH_TOKEN") or token.read_text(errors="replace").strip()
    return ""


def why_silent(address: str, seconds: float = _LONGEST, token: str = "") -> str:
    """Return why no cluster answers in some seconds, or why it does not accept the token; empty if it does."""
    host, port = split_address(address.removeprefix("ray://"))
    seconds = min(seconds, _LONGEST)
    reasons: list[str] = []
    # In a thread: the system looks up the name of a host without a limit.
    asking = threading.Thread(target=lambda: reasons.append(_ask(host, port, seconds, token)), daemon=True)
    asking.start()
    asking.join(seconds + 0.1)
    return reasons[0] if reasons else _no_answer(seconds)


def _ask(host: str, port: int, seconds: float, token: str) -> str:
    until = time.monotonic() + seconds
    try:
        with socket.create_connection((host, port), seconds) as connection:
            if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
                return ""
            connection.sendall(_GREETING)
            answer = _receive(connection, until, lambda answer: len(answer) >= _HEAD)
            if len(answer) < _HEAD or answer[3] != _SETTINGS:
                return "another program listens there"
            return _why_refused(connection, until, _call(host, token)) if token else ""
    except TimeoutError:
        return _no_answer(seconds)
    except OSError as error:
        return (error.strerror or str(error)).lower()


def _why_refused(connection: socket.socket, until: float, call: bytes) -> str:
    """Make a call, and return why the server does not accept it; empty if it does."""
    try:
        connection.sendall(call)
        answer = _receive(connection, until, lambda answer: _STATUS.search(answer) is not None)
    except OSError:
        return _UNDECIDED
    status = _STATUS.search(answer)
    return _UNDECIDED if status is None else _REFUSED if status[1] == _UNAUTHENTICATED else ""


def _receive(connection: socket.socket, until: float, is_enough: Callable[[bytes], bool]) -> bytes:
    """Return what a server sends, until it is enough, or the server closes the connection."""
    answer = b""
    while not is_enough(answer):
        connection.settimeout(max(until - time.monotonic(), 0.001))
        part = connection.recv(4096)
        if not part:
            break
        answer += part
    return answer


def _call(host: str, token: str) -> bytes:
    """Return the HTTP/2 frames of a gRPC call without arguments that asks the control process whether it runs."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": "/ray.rpc.NodeInfoGcsService/CheckAlive",
        ":authority": host,
        "te": "trailers",
        "content-type": "application/grpc",
        "authorization": f"Bearer {token}",
    }
    head = b"".join(b"\0" + _text(name) + _text(value) for name, value in fields.items())
    return _frame(_HEADERS, _END_HEADERS, head) + _frame(_DATA, _END_STREAM, bytes(5))


def _frame(kind: int, flags: int, content: bytes) -> bytes:
    return len(content).to_bytes(3, "big") + bytes((kind, flags, 0, 0, 0, 1)) + content


def _text(value: str) -> bytes:
    """Return a text as a field of HTTP/2 (RFC 7541, section 5): its length in groups of seven bits, and its bytes."""
    content = value.encode()
    length, left = bytes((min(len(content), 127),)), len(content) - 127
    while left >= 128:
        length, left = length + bytes((left % 128 + 128,)), left // 128
    return length + (bytes((left,)) if len(content) >= 127 else b"") + content


def _no_answer(seconds: float) -> str:
    return f"nothing has answered in {seconds:g} s"


def unconnected_error(place: Place, began: float, late: list[int]) -> RankLateError:
    """Return the error for ranks that have not started or joined Ray in time."""
    waited, has = f"{time.monotonic() - began:.0f} s", "have" if len(late) > 1 else "has"
    msg = f"{place.name_rank(place.rank)} has waited {waited}: {place.list_ranks(late)} {has} not connected to Ray"
    error = RankLateError(msg, "see whether each rank was started, and makes a call of ds.world()")
    error.waiting, error.late = (place.rank,), tuple(late)
    return error
