"""The options and the help text of `devshim smi`."""

from __future__ import annotations

import click

__all__ = ["smi"]


@click.command()
@click.option("--query-gpu", metavar="FIELDS", help="Print fields of each GPU, such as index,name,memory.used.")
@click.option("--query-compute-apps", metavar="FIELDS", help="Print fields of each process: pid,used_memory.")
@click.option("--format", "form", metavar="FORM", help="With a query: csv, with ',noheader' and ',nounits'.")
@click.option("--list-gpus", "-L", is_flag=True, help="Print one line for each GPU.")
@click.option("--query", "-q", is_flag=True, help="List the fields of each GPU, one per line.")
@click.option("--display", "-d", metavar="SECTIONS", help="With -q: these sections, such as MEMORY,PIDS.")
@click.option("--id", "-i", "ids", metavar="ID", help="Show these GPUs: indices or UUIDs, separated by commas.")
@click.option("--loop", "-l", type=click.FloatRange(0.1), metavar="SECONDS", help="Repeat until Ctrl-C.")
def smi(
    query_gpu: str | None,
    query_compute_apps: str | None,
    form: str | None,
    list_gpus: bool,
    query: bool,
    display: str | None,
    ids: str | None,
    loop: float | None,
) -> int:
    """Show simulated GPUs, and the memory that programs of 'devshim run' use on them, as nvidia-smi shows real ones.

    In a program of 'devshim run', the command nvidia-smi is this one. If no such program runs, it shows the GPUs that
    DEVSHIM_SIMULATE_GPUS requests. The options, the text and the exit codes are those of nvidia-smi.
    """
    from devshim.cli import smi as showing

    request = showing.Request(query_gpu, query_compute_apps, form, list_gpus, ids, loop, query, display)
    return showing.main(request)
