"""The options and the help text of `devshim tabs`."""

from __future__ import annotations

from pathlib import Path

import click

from devshim.cli._groups import PATH

__all__ = ["tabs"]


@click.command()
@click.argument("script", type=PATH, metavar="SCRIPT")
@click.option("--frameworks", metavar="NAMES", help="The tabs, separated by commas; mxnet,torch,tensorflow,paddle,jax.")
@click.option(
    *("--backend", "-b"),
    default="numpy",
    metavar="NAME",
    help="The framework on which SCRIPT runs here; numpy by default.",
)
@click.option(
    "--gpus", type=click.IntRange(0, 64), default=2, metavar="N", help="How many GPUs to simulate; 2 by default."
)
@click.option("--output", "-o", type=PATH, metavar="FILE", help="Write to FILE; standard output by default.")
def tabs(script: Path, frameworks: str | None, backend: str, gpus: int, output: Path | None) -> int:
    """Print a script as a page of Dive into Deep Learning: a block of native code for each framework, marked #@tab.

    SCRIPT is Python that calls devshim; '# %%' divides it into cells. It runs once, on one framework with simulated
    GPUs, to see what its calls do. Calls without native code stay, and are listed on standard error.
    """
    from devshim.cli import tabs as making

    return making.main(script, frameworks, backend, gpus, output)
