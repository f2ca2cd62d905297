"""The options and the help text of `devshim smi`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devshim.cli._commands import argument, flag, number

if TYPE_CHECKING:
    from devshim.cli._commands import Group

__all__ = ["add"]


def add(app: Group) -> None:
    """Add the command."""
    app.command(
        argument("--query-gpu", metavar="FIELDS", help="Print fields of each GPU, such as index,name,memory.used."),
        argument("--query-compute-apps", metavar="FIELDS", help="Print fields of each process: pid,used_memory."),
        argument("--format", dest="form", metavar="FORM", help="With a query: csv, with ',noheader' and ',nounits'."),
        flag("-L", "--list-gpus", help="Print one line for each GPU."),
        flag("-q", "--query", help="List the fields of each GPU, one a line."),
        argument("-d", "--display", metavar="SECTIONS", help="With -q: these sections, such as MEMORY,PIDS."),
        argument("-i", "--id", dest="ids", metavar="ID", help="Show these GPUs: indices or UUIDs, with commas."),
        argument("-l", "--loop", type=number(float, 0.1), metavar="SECONDS", help="Repeat until Ctrl-C."),
    )(smi)


def smi(
    query_gpu: str | None = None,
    query_compute_apps: str | None = None,
    form: str | None = None,
    list_gpus: bool = False,
    query: bool = False,
    display: str | None = None,
    ids: str | None = None,
    loop: float | None = None,
) -> int:
    """Show simulated GPUs, and the memory that programs of 'devshim run' use on them, as nvidia-smi shows real ones.

    In a program of 'devshim run', the command nvidia-smi is this one. Without such a program it shows the GPUs that
    DEVSHIM_SIMULATE_GPUS requests. The options, the text and the exit codes are those of nvidia-smi.
    """
    from devshim.cli import smi as showing

    request = showing.Request(query_gpu, query_compute_apps, form, list_gpus, ids, loop, query, display)
    return showing.main(request)
