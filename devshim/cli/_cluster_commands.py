"""The commands of `devshim cluster`: their options and help texts; the code is in `devshim.cli.cluster`."""

from __future__ import annotations

from pathlib import Path

from devshim.cli._commands import Group, argument, number

__all__ = ["cluster"]

cluster = Group("Start, join and stop a cluster for jobs of several ranks.")

SIMULATE = argument("--simulate", type=number(int, 1), metavar="K", help="Simulate K GPUs on this machine.")


@cluster.command(
    argument("--listen", metavar="ADDRESS", help="This machine's address; by default, no other can join."),
    argument("--port", type=number(int, 1, 65535), metavar="N", help="6379 by default."),
    SIMULATE,
)
def start(listen: str = "127.0.0.1", port: int = 6379, simulate: int | None = None) -> None:
    """Start a cluster with a new token, and print how to use it and how other machines join it."""
    from devshim.cli import cluster as code

    code.start(listen, port, simulate)


@cluster.command(
    argument("address", metavar="HOST:PORT", help="What `devshim cluster start` printed."),
    argument("--token", type=Path, metavar="FILE", help="Its token; by default, where start wrote it."),
    argument("--listen", metavar="ADDRESS", help="This machine's address; found by default."),
    SIMULATE,
)
def join(address: str, token: Path | None = None, listen: str | None = None, simulate: int | None = None) -> None:
    """Join the cluster that another machine started."""
    from devshim.cli import cluster as code

    code.join(address, token, listen, simulate)


@cluster.command()
def status() -> int:
    """List the hosts of the cluster; exit code 1 without a cluster."""
    from devshim.cli import cluster as code

    return code.status()


@cluster.command()
def stop() -> None:
    """End the node of this machine, and with the first machine's node the cluster."""
    from devshim.cli import cluster as code

    code.stop()
