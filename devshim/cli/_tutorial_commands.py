"""The commands of `devshim tutorial`: their options and help texts; the code is in `devshim.cli.tutorial`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from devshim.cli._build_command import build

__all__ = ["tutorial"]

tutorial = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Write a page once, and run it on every framework."
)
environment = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Create and list the environments of frameworks."
)
tutorial.add_typer(environment, name="env")
tutorial.command()(build)

Pages = Annotated[list[Path], typer.Argument(metavar="PAGE...", help="MyST (.md), percent scripts (.py) or .ipynb.")]
Frameworks = Annotated[
    str | None,
    typer.Option("--frameworks", "-f", metavar="NAMES", help="Only these, such as torch,jax; default: the page's."),
]
Environments = Annotated[
    list[str] | None,
    typer.Option("--env", "-e", metavar="NAME=FOLDER", help="A framework's environment, or its Python, or 'here'."),
]
Gpus = Annotated[
    int | None, typer.Option("--gpus", min=0, max=64, metavar="N", help="How many GPUs; default: the page's.")
]
Real = Annotated[bool, typer.Option("--real", help="Use real GPUs instead of simulated ones.")]
Timeout = Annotated[float, typer.Option("--timeout", min=1, metavar="SECONDS", help="The longest time of a cell.")]
Jobs = Annotated[int, typer.Option("--jobs", "-j", min=1, metavar="N", help="How many frameworks run at a time.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Run also what has not changed.")]
Records = Annotated[
    Path | None, typer.Option("--records", metavar="FOLDER", help="Where the records are; default: beside the page.")
]
Rtol = Annotated[float, typer.Option("--rtol", min=0, metavar="X", help="The relative tolerance of numbers.")]


@tutorial.command()
def new(
    page: Annotated[Path, typer.Argument(metavar="PAGE", help="The file to write: .md, .py or .ipynb.")],
    frameworks: Annotated[
        str, typer.Option("--frameworks", "-f", metavar="NAMES", help="Its frameworks, with commas.")
    ] = "torch,tensorflow,jax,numpy",
) -> None:
    """Write a page that runs: with a neutral cell, a framework's own cell, and a cell that may differ."""
    from devshim.cli import tutorial as code

    raise typer.Exit(code.new(page, frameworks))


@tutorial.command()
def run(
    pages: Pages,
    frameworks: Frameworks = None,
    env: Environments = None,
    gpus: Gpus = None,
    real: Real = False,
    timeout: Timeout = 300,
    jobs: Jobs = 2,
    fresh: Fresh = False,
    records: Records = None,
    rtol: Rtol = 1e-4,
) -> None:
    """Run pages on their frameworks, each in its own environment, and record the results.

    Only what has changed runs: the code, devshim's version or the framework's. Exit code 1 if a cell fails or a
    framework cannot run.
    """
    from devshim.cli import tutorial as code

    chosen = code.options(frameworks, env, gpus, real, timeout, jobs, rtol, fresh, False, records)
    raise typer.Exit(code.run(pages, chosen))


@tutorial.command()
def check(
    pages: Pages,
    frameworks: Frameworks = None,
    env: Environments = None,
    gpus: Gpus = None,
    real: Real = False,
    timeout: Timeout = 300,
    jobs: Jobs = 2,
    fresh: Fresh = False,
    records: Records = None,
    rtol: Rtol = 1e-4,
    recorded: Annotated[bool, typer.Option("--recorded", help="Run nothing: compare the records as they are.")] = False,
    json: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="Also write the result as JSON; '-' prints only the JSON."),
    ] = None,
) -> None:
    """Run pages, and compare values, printed text and errors between the frameworks.

    Exit code 1 if they differ in a cell without the tag 'differs', if a cell fails, or if a framework cannot run.
    """
    from devshim.cli import tutorial as code

    chosen = code.options(frameworks, env, gpus, real, timeout, jobs, rtol, fresh, recorded, records)
    raise typer.Exit(code.check(pages, chosen, json))


@environment.command()
def create(
    frameworks: Annotated[list[str], typer.Argument(metavar="FRAMEWORK...", help="Such as: torch jax.")],
    extra: Annotated[
        list[str] | None, typer.Option("--with", metavar="PACKAGE", help="A further package, such as matplotlib.")
    ] = None,
    python: Annotated[
        Path | None, typer.Option("--python", metavar="PYTHON", help="The Python to use; default: this one.")
    ] = None,
) -> None:
    """Create a virtual environment for each framework, from devshim's extras; one that exists is kept."""
    from devshim.cli import tutorial as code

    raise typer.Exit(code.create(frameworks, extra or [], python))


@environment.command("list")
def list_environments(env: Environments = None) -> None:
    """List the environment of each framework that a page in this folder would run in."""
    from devshim.cli import tutorial as code

    raise typer.Exit(code.list_environments(env or []))
