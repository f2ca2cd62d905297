"""The options of `devshim launch`; its code is in `devshim.cli.launch`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devshim.cli._commands import UsageError, argument, number

if TYPE_CHECKING:
    from devshim.cli._commands import Group

__all__ = ["add"]


def add(app: Group) -> None:
    """Add the command. The options before the program are the command's, and all others the program's."""
    app.command(
        argument(
            "--ranks",
            type=number(int, 1),
            metavar="N",
            help="Ranks on each host; as many as its GPUs allow, or 1 without GPUs.",
        ),
        argument("--cards", type=number(int, 0), metavar="K", help="GPUs of each rank; 1 by default."),
        argument("--simulate", type=number(int, 1), metavar="K", help="Simulate K GPUs in each rank."),
        argument("--hosts", metavar="A,B", help="Hosts of the cluster at DEVSHIM_RAY_ADDRESS; all by default."),
        argument("--timeout", metavar="TIME", help="How long a collective may wait; 60s by default."),
        argument("--start-timeout", metavar="TIME", help="How long the start may take; 5min by default."),
        argument(
            "--retries",
            type=number(int, 0),
            metavar="N",
            help="How often to start again after a failure; default: 0.",
        ),
        program=True,
    )(launch)


def launch(
    program: list[str],
    ranks: int | None = None,
    cards: int = 1,
    simulate: int | None = None,
    hosts: str | None = None,
    timeout: str = "60s",
    start_timeout: str = "5min",
    retries: int = 0,
) -> int:
    """Run a Python program in several processes (ranks), on this machine or on the hosts of a cluster.

    Each line of output begins with the rank and its host. If a rank fails or is late, all are ended, and the last
    paragraph names the rank, the host and the line of the first cause. Exit code 1 if the job failed.
    """
    if not program:
        msg = "give a program: devshim launch --ranks 2 script.py"
        raise UsageError(msg)
    from devshim.cli import launch as launching

    names = None if hosts is None else [name for name in hosts.split(",") if name]
    options = {"hosts": names, "ranks_per_host": ranks, "cards_per_rank": cards, "simulate": simulate}
    times = {"timeout": timeout, "start_timeout": start_timeout}
    return launching.main(program, retries=retries, **options, **times)
