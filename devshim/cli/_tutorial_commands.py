"""The commands of `devshim tutorial`: their options and help texts; the code is in `devshim.cli.tutorial`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from devshim.cli._build_command import ENVIRONMENTS, FRAMEWORKS, PAGES, RECORDS, build
from devshim.cli._groups import PATH, Group

__all__ = ["tutorial"]


@click.group(cls=Group)
def tutorial() -> None:
    """Write a page once, and run it on every framework."""


@tutorial.group("env", cls=Group)
def environment() -> None:
    """Create and list the environments of frameworks."""


tutorial.add_command(build)

_OPTIONS = (
    PAGES,
    FRAMEWORKS,
    ENVIRONMENTS,
    click.option("--gpus", type=click.IntRange(0, 64), metavar="N", help="How many GPUs; default: the page's."),
    click.option("--real", is_flag=True, help="Use real GPUs instead of simulated ones."),
    click.option(
        "--timeout",
        type=click.FloatRange(1),
        default=300,
        metavar="SECONDS",
        help="The longest time of a cell; 300 by default.",
    ),
    click.option(
        *("--jobs", "-j"),
        type=click.IntRange(1),
        default=2,
        metavar="N",
        help="How many frameworks run at a time; 2 by default.",
    ),
    click.option("--fresh", is_flag=True, help="Also run what has not changed."),
    RECORDS,
    click.option(
        "--rtol",
        type=click.FloatRange(0),
        default=1e-4,
        metavar="X",
        help="The relative tolerance of numbers; 0.0001 by default.",
    ),
)


def _add_run_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of every command that runs pages."""
    for each in reversed(_OPTIONS):
        function = each(function)
    return function


@tutorial.command()
@click.argument("page", type=PATH, metavar="PAGE")
@click.option(
    *("--frameworks", "-f"),
    default="torch,tensorflow,jax,numpy",
    metavar="NAMES",
    help="Its frameworks, separated by commas; torch,tensorflow,jax,numpy by default.",
)
def new(page: Path, frameworks: str) -> int:
    """Write a page that runs: with a neutral cell, a framework's own cell, and a cell that may differ.

    PAGE is the file to write: .md, .py or .ipynb.
    """
    from devshim.cli import tutorial as code

    return code.new(page, frameworks)


@tutorial.command()
@_add_run_options
def run(
    pages: tuple[Path, ...],
    frameworks: str | None,
    env: tuple[str, ...],
    gpus: int | None,
    real: bool,
    timeout: float,
    jobs: int,
    fresh: bool,
    records: Path | None,
    rtol: float,
) -> int:
    """Run pages on their frameworks, each in its own environment, and record the results.

    A PAGE is a MyST file (.md), a percent script (.py) or a notebook (.ipynb). Only what has changed runs: the code,
    devshim's version or the framework's. Exit code 1 if a cell fails or a framework cannot run.
    """
    from devshim.cli import tutorial as code

    chosen = code.options(frameworks, list(env), gpus, real, timeout, jobs, rtol, fresh, False, records)
    return code.run(list(pages), chosen)


@tutorial.command()
@_add_run_options
@click.option("--recorded", is_flag=True, help="Run nothing: compare the existing records.")
@click.option("--json", type=PATH, metavar="FILE", help="Also write the result as JSON; '-' prints only the JSON.")
def check(
    pages: tuple[Path, ...],
    frameworks: str | None,
    env: tuple[str, ...],
    gpus: int | None,
    real: bool,
    timeout: float,
    jobs: int,
    fresh: bool,
    records: Path | None,
    rtol: float,
    recorded: bool,
    json: Path | None,
) -> int:
    """Run pages, and compare values, printed text and errors between the frameworks.

    A PAGE is a MyST file (.md), a percent script (.py) or a notebook (.ipynb). Exit code 1 if they differ in a cell
    without the tag 'differs', if a cell fails, or if a framework cannot run.
    """
    from devshim.cli import tutorial as code

    chosen = code.options(frameworks, list(env), gpus, real, timeout, jobs, rtol, fresh, recorded, records)
    return code.check(list(pages), chosen, json)


@environment.command()
@click.argument("frameworks", nargs=-1, required=True, metavar="FRAMEWORK...")
@click.option("--with", "extra", multiple=True, metavar="PACKAGE", help="A further package, such as matplotlib.")
@click.option("--python", type=PATH, metavar="PYTHON", help="The Python to use; default: this one.")
def create(frameworks: tuple[str, ...], extra: tuple[str, ...], python: Path | None) -> int:
    """Create a virtual environment for each FRAMEWORK from devshim's extras; one that exists is kept."""
    from devshim.cli import tutorial as code

    return code.create(list(frameworks), list(extra), python)


@environment.command(name="list")
@ENVIRONMENTS
def list_environments(env: tuple[str, ...]) -> int:
    """List the environment of each framework that a page in this folder would run in."""
    from devshim.cli import tutorial as code

    return code.list_environments(list(env))
