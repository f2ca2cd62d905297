"""The options and the help text of `devshim launch`; its code is in `devshim.cli.launch`."""

from __future__ import annotations

import click

from devshim.cli._groups import ProgramCommand

__all__ = ["launch"]


@click.command(cls=ProgramCommand)
@click.option(
    "--ranks",
    type=click.IntRange(1),
    metavar="N",
    help="Ranks on each host; as many as its GPUs allow, or 1 without GPUs.",
)
@click.option("--cards", type=click.IntRange(0), default=1, metavar="K", help="GPUs of each rank; 1 by default.")
@click.option("--simulate", type=click.IntRange(1), metavar="K", help="Simulate K GPUs in each rank.")
@click.option("--hosts", metavar="A,B", help="Hosts of the cluster at DEVSHIM_RAY_ADDRESS; all by default.")
@click.option("--timeout", default="60s", metavar="TIME", help="How long a collective may wait; 60s by default.")
@click.option("--start-timeout", default="5min", metavar="TIME", help="How long the start may take; 5min by default.")
@click.option(
    "--retries",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="How many restarts after failures to allow; default: 0.",
)
@click.option(
    "--min-ranks",
    type=click.IntRange(1),
    metavar="N",
    help="The minimum number of ranks for a restart after a host is lost; default: all.",
)
def launch(
    program: list[str],
    ranks: int | None,
    cards: int,
    simulate: int | None,
    hosts: str | None,
    timeout: str,
    start_timeout: str,
    retries: int,
    min_ranks: int | None,
) -> int:
    """Run a Python program in several processes (ranks), on this machine or on the hosts of a cluster.

    Each line of output begins with the rank and its host. If a rank fails or is late, all are ended, and the last
    paragraph names the rank, the host and the line of the first cause. Exit code 1 if the job failed.
    """
    from devshim.cli import launch as launching

    names = None if hosts is None else [name for name in hosts.split(",") if name]
    options = {"hosts": names, "ranks_per_host": ranks, "cards_per_rank": cards, "simulate": simulate}
    times = {"timeout": timeout, "start_timeout": start_timeout}
    return launching.main(program, retries=retries, min_ranks=min_ranks, **options, **times)
