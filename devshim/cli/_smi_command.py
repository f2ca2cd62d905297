"""The options and the help text of `devshim smi`."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["smi"]


def smi(
    query_gpu: Annotated[
        str | None,
        typer.Option("--query-gpu", metavar="FIELDS", help="Print fields of each GPU, such as index,name,memory.used."),
    ] = None,
    query_compute_apps: Annotated[
        str | None,
        typer.Option(
            "--query-compute-apps", metavar="FIELDS", help="Print fields of each process, such as pid,used_memory."
        ),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option("--format", metavar="FORM", help="With a query: csv, with ',noheader' and ',nounits'."),
    ] = None,
    list_gpus: Annotated[bool, typer.Option("--list-gpus", "-L", help="Print one line for each GPU.")] = False,
    query: Annotated[bool, typer.Option("--query", "-q", help="List the fields of each GPU, one a line.")] = False,
    display: Annotated[
        str | None,
        typer.Option("--display", "-d", metavar="SECTIONS", help="With -q: these sections, such as MEMORY,PIDS."),
    ] = None,
    ids: Annotated[
        str | None, typer.Option("--id", "-i", metavar="ID", help="Show these GPUs: indices or UUIDs, with commas.")
    ] = None,
    loop: Annotated[
        float | None, typer.Option("--loop", "-l", min=0.1, metavar="SECONDS", help="Repeat until Ctrl-C.")
    ] = None,
) -> None:
    """Show simulated GPUs, and the memory that programs of 'devshim run' use on them, as nvidia-smi shows real ones.

    In a program of 'devshim run', the command nvidia-smi is this one. Without such a program it shows the GPUs that
    DEVSHIM_SIMULATE_GPUS requests. The options, the text and the exit codes are those of nvidia-smi.
    """
    from devshim.cli import smi as showing

    request = showing.Request(query_gpu, query_compute_apps, form, list_gpus, ids, loop, query, display)
    raise typer.Exit(showing.main(request))
