"""The options and the help text of `devshim tabs`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["tabs"]


def tabs(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", hidden=True)],
    frameworks: Annotated[
        str | None,
        typer.Option("--frameworks", metavar="NAMES", help="The tabs, with commas; mxnet,torch,tensorflow,paddle,jax."),
    ] = None,
    backend: Annotated[
        str, typer.Option("--backend", "-b", metavar="NAME", help="The framework on which SCRIPT runs here.")
    ] = "numpy",
    gpus: Annotated[
        int, typer.Option("--gpus", min=0, max=64, metavar="N", help="How many GPUs to simulate while it runs.")
    ] = 2,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to FILE; standard output by default.")
    ] = None,
) -> None:
    """Print a script as a page of Dive into Deep Learning: a block of native code for each framework, marked #@tab.

    SCRIPT is Python that calls devshim; '# %%' divides it into cells. It runs once, on one framework with simulated
    GPUs, to see what its calls do. Calls without native code stay, and are listed on standard error.
    """
    from devshim.cli import tabs as making

    raise typer.Exit(making.main(script, frameworks, backend, gpus, output))
