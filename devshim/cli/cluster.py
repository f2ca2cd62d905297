"""`devshim cluster`: start, join, list and stop a cluster."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from devshim.cli._console import Column, Grid, say, show
from devshim.world import node
from devshim.world.cluster import find_token

__all__ = ["join", "start", "status", "stop"]


def start(listen: str, port: int, simulate: int | None) -> None:
    """Start a cluster, and print how to use it."""
    found = node.start(listen, port, simulate)
    say(f"The cluster runs at {found.address}. For jobs on it:")
    _print_variables(found)
    if found.listen.startswith("127."):
        say("No other machine can join. To let them, start it with --listen and this machine's address.")
        return
    say("Ray listens on all addresses of this machine, and asks for the token: use a private network.")
    say("On each other machine, copy the token and join:")
    folder, token = shlex.quote(str(Path(found.token).parent)), shlex.quote(found.token)
    say(f"  mkdir -p -m 700 {folder}")
    say(f"  scp {shlex.quote(f'{found.listen}:{found.token}')} {token}")
    say(f"  devshim cluster join {found.address}")


def join(address: str, token: Path | None, listen: str | None, simulate: int | None) -> None:
    """Join a cluster, and print how to use it."""
    found = node.join(address, token, listen, simulate)
    say(f"This machine has joined the cluster at {found.address}. For jobs on it:")
    _print_variables(found)


def status() -> int:
    """Print the hosts of the cluster, and return the exit code."""
    here = node.running()
    address = here.address if here else os.environ.get("DEVSHIM_RAY_ADDRESS", "")
    if not address or not (here or os.environ.get("RAY_AUTH_TOKEN_PATH")):
        say("No cluster: this machine has no node, and DEVSHIM_RAY_ADDRESS and RAY_AUTH_TOKEN_PATH are not set.")
        return 1
    token = Path(here.token) if here else find_token(address)
    hosts = node.connect(address, token).values()
    grid = Grid(f"The cluster at {address}", [Column("host"), Column("address"), Column("GPUs")])
    for host in hosts:
        grid.rows.append((host.name, host.address, f"{host.cards}{' simulated' if host.simulated else ''}"))
    show(grid)
    return 0


def stop() -> None:
    """End the node of this machine."""
    found = node.stop()
    if found is None:
        say("This machine has no node of a cluster.")
    elif found.is_first:
        say(f"The cluster at {found.address} has ended.")
    else:
        say(f"This machine has left the cluster at {found.address}.")


def _print_variables(found: node.Node) -> None:
    say(f"  export DEVSHIM_RAY_ADDRESS={found.address}")
    say(f"  export RAY_AUTH_TOKEN_PATH={shlex.quote(found.token)}")
