"""The options of `devshim launch`; its code is in `devshim.cli.launch`."""

from __future__ import annotations

from typing import Annotated

import typer

from devshim.cli._program import ProgramCommand

__all__ = ["LaunchCommand", "launch"]


class LaunchCommand(ProgramCommand):
    """The options before the program are the command's, and all others the program's."""

    with_value = frozenset({"--hosts", "--ranks", "--cards", "--simulate", "--timeout", "--start-timeout", "--retries"})


def launch(
    context: typer.Context,
    ranks: Annotated[
        int | None,
        typer.Option(
            "--ranks", min=1, metavar="N", help="Ranks on each host; as many as its GPUs allow, or 1 without GPUs."
        ),
    ] = None,
    cards: Annotated[int, typer.Option("--cards", min=0, metavar="K", help="GPUs of each rank; 1 by default.")] = 1,
    simulate: Annotated[
        int | None, typer.Option("--simulate", min=1, metavar="K", help="Simulate K GPUs in each rank.")
    ] = None,
    hosts: Annotated[
        str | None,
        typer.Option("--hosts", metavar="A,B", help="Hosts of the cluster at DEVSHIM_RAY_ADDRESS; all by default."),
    ] = None,
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="TIME", help="How long a collective may wait; 60s by default.")
    ] = "60s",
    start_timeout: Annotated[
        str, typer.Option("--start-timeout", metavar="TIME", help="How long the start may take; 5min by default.")
    ] = "5min",
    retries: Annotated[
        int, typer.Option("--retries", min=0, metavar="N", help="How often to start again after a failure.")
    ] = 0,
) -> None:
    """Run a Python program in several processes (ranks), on this machine or on the hosts of a cluster.

    Each line of output begins with the rank and its host. If a rank fails or is late, all are ended, and the last
    paragraph names the rank, the host and the line of the first cause. Exit code 1 if the job failed.
    """
    if not context.args:
        msg = "give a program: devshim launch --ranks 2 script.py"
        raise typer.BadParameter(msg)
    from devshim.cli import launch as launching

    names = None if hosts is None else [name for name in hosts.split(",") if name]
    options = {"hosts": names, "ranks_per_host": ranks, "cards_per_rank": cards, "simulate": simulate}
    times = {"timeout": timeout, "start_timeout": start_timeout}
    raise typer.Exit(launching.main(context.args, retries=retries, **options, **times))
