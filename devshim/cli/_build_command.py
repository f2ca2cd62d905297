"""The options and the help text of `devshim tutorial build`."""

from __future__ import annotations

from pathlib import Path

import click

from devshim.cli._groups import PATH

__all__ = ["ENVIRONMENTS", "FRAMEWORKS", "PAGES", "RECORDS", "build"]

PAGES = click.argument("pages", nargs=-1, required=True, type=PATH, metavar="PAGE...")
FRAMEWORKS = click.option(
    "--frameworks", "-f", metavar="NAMES", help="Only these, such as torch,jax; default: all of the page."
)
ENVIRONMENTS = click.option(
    *("--env", "-e"),
    multiple=True,
    metavar="NAME=FOLDER",
    help="A framework's environment, or its Python, or 'here'.",
)
RECORDS = click.option(
    "--records", type=PATH, metavar="FOLDER", help="Where the records are; default: beside the page."
)


@click.command()
@PAGES
@click.option("--output", "-o", type=PATH, default="site", metavar="FOLDER", help="Where to write; site by default.")
@click.option(
    *("--format", "formats"),
    default="md,html,ipynb",
    metavar="FORMATS",
    help="Separated by commas: md (for Sphinx), html (one file), ipynb; all by default.",
)
@click.option(
    "--own-words", "native_notebooks", is_flag=True, help="Also write and check notebooks in each framework's own code."
)
@FRAMEWORKS
@ENVIRONMENTS
@RECORDS
@click.option("--recorded", is_flag=True, help="Run nothing: use the stored records, and check no native notebooks.")
@click.option("--watch", is_flag=True, help="Build again whenever a page's file changes, until Ctrl-C.")
def build(
    pages: tuple[Path, ...],
    output: Path,
    formats: str,
    native_notebooks: bool,
    frameworks: str | None,
    env: tuple[str, ...],
    records: Path | None,
    recorded: bool,
    watch: bool,
) -> int:
    """Write pages with tabs of all frameworks, and notebooks of each; run first what has changed.

    A PAGE is a MyST file (.md), a percent script (.py) or a notebook (.ipynb). Exit code 1 if a cell fails, a framework
    has no record, or a notebook in native code fails.
    """
    from devshim.cli import building as code

    return code.main(list(pages), output, formats, native_notebooks, frameworks, list(env), records, recorded, watch)
