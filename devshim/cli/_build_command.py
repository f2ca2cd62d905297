"""The options and the help text of `devshim tutorial build`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["build"]


def build(
    pages: Annotated[
        list[Path], typer.Argument(metavar="PAGE...", help="MyST (.md), percent scripts (.py) or .ipynb.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="Where to write.")] = Path("site"),
    formats: Annotated[
        str, typer.Option("--format", metavar="FORMATS", help="With commas: md (for Sphinx), html (one file), ipynb.")
    ] = "md,html,ipynb",
    own_words: Annotated[
        bool,
        typer.Option("--own-words", help="Also write and check notebooks in each framework's own code."),
    ] = False,
    frameworks: Annotated[
        str | None,
        typer.Option("--frameworks", "-f", metavar="NAMES", help="Only these, such as torch,jax; default: the page's."),
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", "-e", metavar="NAME=FOLDER", help="A framework's environment, or its Python, or 'here'."),
    ] = None,
    records: Annotated[
        Path | None,
        typer.Option("--records", metavar="FOLDER", help="Where the records are; default: beside the page."),
    ] = None,
    recorded: Annotated[
        bool, typer.Option("--recorded", help="Run nothing: use the records as they are, and check no own words.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Build again whenever a page's file changes, until Ctrl-C.")
    ] = False,
) -> None:
    """Write pages with tabs of all frameworks, and notebooks of each; run first what has changed.

    Exit code 1 if a cell fails, a framework has no record, or a notebook in own words fails.
    """
    from devshim.cli import building as code

    raise typer.Exit(code.main(pages, output, formats, own_words, frameworks, env or [], records, recorded, watch))
