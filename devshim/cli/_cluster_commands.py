"""The commands of `devshim cluster`: their options and help texts; the code is in `devshim.cli.cluster`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["cluster"]

cluster = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Start, join and stop a cluster for jobs of several ranks."
)

Simulate = Annotated[
    int | None, typer.Option("--simulate", min=1, metavar="K", help="Simulate K GPUs on this machine.")
]


@cluster.command()
def start(
    listen: Annotated[
        str, typer.Option("--listen", metavar="ADDRESS", help="This machine's address; by default, no other can join.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=1, max=65535, metavar="N", help="6379 by default.")] = 6379,
    simulate: Simulate = None,
) -> None:
    """Start a cluster with a new token, and print how to use it and how other machines join it."""
    from devshim.cli import cluster as code

    code.start(listen, port, simulate)


@cluster.command()
def join(
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="What `devshim cluster start` printed.")],
    token: Annotated[
        Path | None,
        typer.Option("--token", metavar="FILE", help="Its token; by default, where start wrote it."),
    ] = None,
    listen: Annotated[
        str | None, typer.Option("--listen", metavar="ADDRESS", help="This machine's address; found by default.")
    ] = None,
    simulate: Simulate = None,
) -> None:
    """Join the cluster that another machine started."""
    from devshim.cli import cluster as code

    code.join(address, token, listen, simulate)


@cluster.command()
def status() -> None:
    """List the hosts of the cluster; exit code 1 without a cluster."""
    from devshim.cli import cluster as code

    raise typer.Exit(code.status())


@cluster.command()
def stop() -> None:
    """End the node of this machine, and with the first machine's node the cluster."""
    from devshim.cli import cluster as code

    code.stop()
