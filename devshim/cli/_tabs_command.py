"""The options and the help text of `devshim tabs`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from devshim.cli._commands import argument, number

if TYPE_CHECKING:
    from devshim.cli._commands import Group

__all__ = ["add"]


def add(app: Group) -> None:
    """Add the command."""
    app.command(
        argument("script", type=Path, metavar="SCRIPT"),
        argument("--frameworks", metavar="NAMES", help="The tabs, with commas; mxnet,torch,tensorflow,paddle,jax."),
        argument("-b", "--backend", metavar="NAME", help="The framework on which SCRIPT runs here; numpy by default."),
        argument("--gpus", type=number(int, 0, 64), metavar="N", help="How many GPUs to simulate; 2 by default."),
        argument("-o", "--output", type=Path, metavar="FILE", help="Write to FILE; standard output by default."),
    )(tabs)


def tabs(
    script: Path,
    frameworks: str | None = None,
    backend: str = "numpy",
    gpus: int = 2,
    output: Path | None = None,
) -> int:
    """Print a script as a page of Dive into Deep Learning: a block of native code for each framework, marked #@tab.

    SCRIPT is Python that calls devshim; '# %%' divides it into cells. It runs once, on one framework with simulated
    GPUs, to see what its calls do. Calls without native code stay, and are listed on standard error.
    """
    from devshim.cli import tabs as making

    return making.main(script, frameworks, backend, gpus, output)
