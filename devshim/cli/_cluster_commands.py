"""The commands of `devshim cluster`: their options and help texts; the code is in `devshim.cli.cluster`."""

from __future__ import annotations

from pathlib import Path

import click

from devshim.cli._groups import PATH, Group

__all__ = ["cluster"]

SIMULATE = click.option("--simulate", type=click.IntRange(1), metavar="K", help="Simulate K GPUs on this machine.")


@click.group(cls=Group)
def cluster() -> None:
    """Start, join and stop a cluster for jobs of several ranks."""


@cluster.command()
@click.option(
    "--listen",
    default="127.0.0.1",
    metavar="ADDRESS",
    help="This machine's address; by default, no other machine can join.",
)
@click.option("--port", type=click.IntRange(1, 65535), default=6379, metavar="N", help="6379 by default.")
@SIMULATE
def start(listen: str, port: int, simulate: int | None) -> None:
    """Start a cluster with a new token, and print how to use it and how other machines join it."""
    from devshim.cli import cluster as code

    code.start(listen, port, simulate)


@cluster.command()
@click.argument("address", metavar="HOST:PORT")
@click.option("--token", type=PATH, metavar="FILE", help="The file with its token; default: the one that start wrote.")
@click.option("--listen", metavar="ADDRESS", help="This machine's address; found by default.")
@SIMULATE
def join(address: str, token: Path | None, listen: str | None, simulate: int | None) -> None:
    """Join the cluster that another machine started; its 'devshim cluster start' printed HOST:PORT."""
    from devshim.cli import cluster as code

    code.join(address, token, listen, simulate)


@cluster.command()
def status() -> int:
    """List the hosts of the cluster; exit code 1 without a cluster."""
    from devshim.cli import cluster as code

    return code.status()


@cluster.command()
def stop() -> None:
    """End the node of this machine; ending the first machine's node ends the cluster."""
    from devshim.cli import cluster as code

    code.stop()
