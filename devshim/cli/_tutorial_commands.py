"""The commands of `devshim tutorial`: their options and help texts; the code is in `devshim.cli.tutorial`."""

from __future__ import annotations

from pathlib import Path

from devshim.cli._build_command import add as add_build
from devshim.cli._commands import Group, argument, flag, number

__all__ = ["tutorial"]

tutorial = Group("Write a page once, and run it on every framework.")
environment = Group("Create and list the environments of frameworks.")
tutorial.commands["env"] = environment
add_build(tutorial)

PAGES = argument("pages", nargs="+", type=Path, metavar="PAGE", help="MyST (.md), percent scripts (.py) or .ipynb.")
ENVIRONMENTS = argument(
    *("-e", "--env"),
    action="append",
    metavar="NAME=FOLDER",
    help="A framework's environment, or its Python, or 'here'.",
)
OPTIONS = (
    argument("-f", "--frameworks", metavar="NAMES", help="Only these, such as torch,jax; default: the page's."),
    ENVIRONMENTS,
    argument("--gpus", type=number(int, 0, 64), metavar="N", help="How many GPUs; default: the page's."),
    flag("--real", help="Use real GPUs instead of simulated ones."),
    argument(
        "--timeout",
        type=number(float, 1),
        metavar="SECONDS",
        help="The longest time of a cell; 300 by default.",
    ),
    argument(
        *("-j", "--jobs"),
        type=number(int, 1),
        metavar="N",
        help="How many frameworks run at a time; 2 by default.",
    ),
    flag("--fresh", help="Run also what has not changed."),
    argument("--records", type=Path, metavar="FOLDER", help="Where the records are; default: beside the page."),
    argument(
        "--rtol", type=number(float, 0), metavar="X", help="The relative tolerance of numbers; 0.0001 by default."
    ),
)


@tutorial.command(
    argument("page", type=Path, metavar="PAGE", help="The file to write: .md, .py or .ipynb."),
    argument(
        *("-f", "--frameworks"),
        metavar="NAMES",
        help="Its frameworks, with commas; torch,tensorflow,jax,numpy by default.",
    ),
)
def new(page: Path, frameworks: str = "torch,tensorflow,jax,numpy") -> int:
    """Write a page that runs: with a neutral cell, a framework's own cell, and a cell that may differ."""
    from devshim.cli import tutorial as code

    return code.new(page, frameworks)


@tutorial.command(PAGES, *OPTIONS)
def run(
    pages: list[Path],
    frameworks: str | None = None,
    env: list[str] | None = None,
    gpus: int | None = None,
    real: bool = False,
    timeout: float = 300,
    jobs: int = 2,
    fresh: bool = False,
    records: Path | None = None,
    rtol: float = 1e-4,
) -> int:
    """Run pages on their frameworks, each in its own environment, and record the results.

    Only what has changed runs: the code, devshim's version or the framework's. Exit code 1 if a cell fails or a
    framework cannot run.
    """
    from devshim.cli import tutorial as code

    chosen = code.options(frameworks, env, gpus, real, timeout, jobs, rtol, fresh, False, records)
    return code.run(pages, chosen)


@tutorial.command(
    PAGES,
    *OPTIONS,
    flag("--recorded", help="Run nothing: compare the records as they are."),
    argument("--json", type=Path, metavar="FILE", help="Also write the result as JSON; '-' prints only the JSON."),
)
def check(
    pages: list[Path],
    frameworks: str | None = None,
    env: list[str] | None = None,
    gpus: int | None = None,
    real: bool = False,
    timeout: float = 300,
    jobs: int = 2,
    fresh: bool = False,
    records: Path | None = None,
    rtol: float = 1e-4,
    recorded: bool = False,
    json: Path | None = None,
) -> int:
    """Run pages, and compare values, printed text and errors between the frameworks.

    Exit code 1 if they differ in a cell without the tag 'differs', if a cell fails, or if a framework cannot run.
    """
    from devshim.cli import tutorial as code

    chosen = code.options(frameworks, env, gpus, real, timeout, jobs, rtol, fresh, recorded, records)
    return code.check(pages, chosen, json)


@environment.command(
    argument("frameworks", nargs="+", metavar="FRAMEWORK", help="Such as: torch jax."),
    argument(
        "--with",
        dest="extra",
        action="append",
        metavar="PACKAGE",
        help="A further package, such as matplotlib.",
    ),
    argument("--python", type=Path, metavar="PYTHON", help="The Python to use; default: this one."),
)
def create(frameworks: list[str], extra: list[str] | None = None, python: Path | None = None) -> int:
    """Create a virtual environment for each framework, from devshim's extras; one that exists is kept."""
    from devshim.cli import tutorial as code

    return code.create(frameworks, extra or [], python)


@environment.command(ENVIRONMENTS, name="list")
def list_environments(env: list[str] | None = None) -> int:
    """List the environment of each framework that a page in this folder would run in."""
    from devshim.cli import tutorial as code

    return code.list_environments(env or [])
