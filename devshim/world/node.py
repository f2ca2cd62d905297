"""The node that `devshim cluster` keeps on this machine: a Ray process that outlives the command.

Its state and the cluster's token are in a folder that only the user can read. The node is a process with its own
session. Its end also ends all processes that it started, and no others: a user may have another Ray on the same
machine.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from devshim.errors import WorldError
from devshim.registry.private_paths import is_private
from devshim.registry.processes import system_facts
from devshim.world import cluster, folders, sessions
from devshim.world.local_ray import start_time, write_facts
from devshim.world.reaching import require_cluster, split_address
from devshim.world.watchdog import is_tracker

__all__ = ["Node", "connect", "join", "own_address", "running", "start", "state_folder", "stop"]

_READY = "Ray runtime started."
_STARTING = 90.0
_ENDING = 5.0
_MOMENT = 0.02
_ANSWERING = 10.0
"""Seconds in which a cluster must answer."""


@dataclass(frozen=True)
class Node:
    """A node of a cluster.

    Attributes:
        address: ``"address:port"`` of the cluster.
        listen: The address by which the others reach this machine. A first node on ``127.0.0.1`` listens only there;
            otherwise Ray listens on all addresses.
        process: Its process.
        began: The start time of the process, in the system's units.
        token: The file of the cluster's token.
        folder: Where Ray keeps its files and sockets.
        is_first: True if the node started the cluster.
    """

    address: str
    listen: str
    process: int
    began: str
    token: str
    folder: str
    is_first: bool


def state_folder() -> Path:
    """Return the folder of the node's state, which only this user can read.

    Raises:
        WorldError: It belongs to another user, others may read it, or it cannot be made.
    """
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    folder = Path(base) / "devshim" / "cluster"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        msg = f"the folder {folder} for the token of a cluster cannot be made: {error.strerror}"
        raise WorldError(msg, "set XDG_STATE_HOME to a folder that you can write to") from error
    return cluster.require_private(
        folder, f"chmod 700 {shlex.quote(str(folder))}, or remove it: it contains the cluster's token"
    )


def running() -> Node | None:
    """Return the node of this machine, or None if it has ended."""
    try:
        node = Node(**json.loads((state_folder() / "node.json").read_text()))
    except (OSError, ValueError, TypeError):
        return None
    return node if start_time(node.process) == node.began != "0" else None


def start(listen: str, port: int, simulate: int | None = None) -> Node:
    """Start a cluster with a new token, and the first node on this machine.

    Args:
        listen: The address of this machine for the others; ``127.0.0.1`` if no other machine may join.
        port: The port.
        simulate: How many GPUs to simulate; None for real ones.

    Raises:
        WorldError: A node runs here already, or Ray does not start.
    """
    cluster.require_ray()
    _require_none()
    reason = _why_unbound(listen, port)
    if reason:
        msg = f"the cluster cannot listen on {listen}:{port}: {reason}"
        raise WorldError(msg, "give an address of this machine and a free port: --listen 10.0.0.1 --port 6380")
    token = state_folder() / "token"
    token.unlink(missing_ok=True)
    cluster.make_token(token.parent)
    words = ["--head", f"--port={port}", "--include-dashboard=false"]
    return _start(words, f"{listen}:{port}", listen, token, simulate, is_first=True)


def join(address: str, token: Path | None = None, listen: str | None = None, simulate: int | None = None) -> Node:
    """Join a cluster with a node on this machine.

    Args:
        address: ``"address:port"`` of the cluster.
        token: The file of its token; None for the one in `state_folder`.
        listen: The address of this machine for the others; None for the one from which it reaches the cluster.
        simulate: How many GPUs to simulate; None for real ones.

    Raises:
        ArgumentError: The address is not of the form ``host:port``.
        WorldError: The token is missing, others may read it, a node runs here already, no cluster answers, or Ray does
            not start.
    """
    host, port = split_address(address)
    cluster.require_ray()
    _require_none()
    if is_loopback(host):
        msg = f"no other machine can join the cluster at {address}: {host} is the address of one machine for itself"
        raise WorldError(msg, "start the cluster with --listen and an address of its machine, and join that address")
    found = state_folder() / "token" if token is None else token
    if not found.is_file():
        msg = f"the token {found} is missing, and without a token anybody could join"
        raise WorldError(msg, "copy it from the machine that started the cluster: `devshim cluster start` printed how")
    if not is_private(found.resolve()):
        msg = f"others may read the token {found}"
        raise WorldError(msg, f"chmod 600 {shlex.quote(str(found))}")
    require_cluster(address, _ANSWERING, found, "see whether it runs, and whether this is what its start printed")
    own = listen or own_address(host, port)
    reason = "the other machines cannot reach it" if is_loopback(own) else _why_unbound(own, 0)
    if reason:
        msg = f"this machine cannot join with the address {own}: {reason}"
        raise WorldError(msg, "give the address that it has in the private network: --listen 10.0.0.2")
    return _start([f"--address={address}"], address, own, found, simulate)


def stop() -> Node | None:
    """End the node of this machine and all processes that it started; return it, or None if there was none.

    All end at once, as if the machine was lost: Ray would wait 20 seconds for a job, and meanwhile report its end as
    that of a process, and place others on the node.
    """
    node = running()
    if node is not None:
        tree = _tree(node.process)
        until = time.monotonic() + _ENDING
        while (left := [each for each, began in tree.items() if _runs(each, began)]) and time.monotonic() < until:
            sessions.kill(
                each for each in left if not is_tracker(each)
            )  # trackers remove what ranks have left, and end
            time.sleep(_MOMENT)
        sessions.kill(left)
        sessions.end(node.process)  # processes that were started meanwhile
        folders.remove(Path(node.folder))
    (state_folder() / "node.json").unlink(missing_ok=True)
    return node


def connect(address: str, token: Path) -> dict[str, cluster.Host]:
    """Connect this process to a cluster, and return its hosts.

    Raises:
        ArgumentError: The address is not of the form ``host:port``.
        WorldError: The cluster does not answer in ten seconds, or refuses the token.
    """
    folder = tempfile.gettempdir()
    os.environ.update(cluster.settings(token, Path(folder), local=address.startswith("127.")))
    cluster.connect(address, _ANSWERING)
    return cluster.hosts_of()


def _require_none() -> None:
    node = running()
    if node is not None:
        msg = f"this machine has a node of the cluster at {node.address} already"
        raise WorldError(msg, "`devshim cluster stop` ends it")


def _start(
    words: list[str], address: str, listen: str, token: Path, simulate: int | None, is_first: bool = False
) -> Node:
    folder = folders.new()
    log = state_folder() / "node.log"
    simulated = [] if simulate is None else ["--num-gpus=0", f'--resources={{"sim_gpu": {simulate}}}']
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats"]
    command += [f"--node-ip-address={listen}", f"--temp-dir={folder / 'ray'}", *words, *simulated]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env={**os.environ, **cluster.settings(token, folder, local=is_first and listen.startswith("127."))},
            stdin=subprocess.DEVNULL,
            stdout=output,
            pass_fds=[folders.lock_of(folder)],
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    node = Node(address, listen, process.pid, start_time(process.pid), str(token), str(folder), is_first)
    try:
        write_facts(log.with_name("node.json"), asdict(node))
        _wait_for(process, log)
    except BaseException:  # also after Ctrl-C, the machine must not join later
        stop()
        sessions.finish(process, 0)
        folders.remove(folder)
        raise
    return node


def _wait_for(process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a node has started."""
    until = time.monotonic() + _STARTING
    while _READY not in log.read_text(errors="replace"):
        if process.poll() is not None or time.monotonic() > until:
            said = [line for line in log.read_text(errors="replace").splitlines() if line.strip()][-3:]
            msg = f"Ray did not start: {' '.join(said) or 'it printed nothing'}"
            raise WorldError(msg, f"all of its output is in {log}")
        time.sleep(0.1)


def is_loopback(host: str) -> bool:
    """Return True for an address of a machine that no other machine reaches."""
    return host.startswith("127.") or host in ("localhost", "::1")


def _why_unbound(listen: str, port: int) -> str:
    """Return why this machine cannot listen on an address; empty if it can."""
    if listen in ("0.0.0.0", "::", ""):
        return "the others need one address by which they reach this machine"
    with socket.socket(socket.AF_INET6 if ":" in listen else socket.AF_INET) as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            free.bind((listen, port))
        except OSError as error:
            return error.strerror or str(error)
    return ""


def own_address(host: str, port: int) -> str:
    """Return the address of this machine from which another one is reached; this sends nothing.

    Raises:
        WorldError: The other one cannot be reached.
    """
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
            found.connect((host, port))
            name: str = found.getsockname()[0]
            return name
    except OSError as error:
        msg = f"{host} cannot be reached from this machine: {error.strerror}"
        raise WorldError(msg, "give the address that the machine has in the private network") from error


def _tree(process: int) -> dict[int, str]:
    """Return a process and all processes that it started, each with the time of its start."""
    found = {process: start_time(process)}
    with suppress(OSError):
        for task in Path(f"/proc/{process}/task").iterdir():
            with suppress(OSError):
                for child in (task / "children").read_text().split():
                    found.update(_tree(int(child)))
    return found


def _runs(process: int, began: str) -> bool:
    """Return True if a process has not ended."""
    with suppress(OSError):
        facts = system_facts(process)
        return facts[19] == began and facts[0] not in sessions.DEAD
    return False
