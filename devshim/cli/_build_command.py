"""The options and the help text of `devshim tutorial build`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from devshim.cli._commands import argument, flag

if TYPE_CHECKING:
    from devshim.cli._commands import Group

__all__ = ["add"]


def add(tutorial: Group) -> None:
    """Add the command."""
    tutorial.command(
        argument("pages", nargs="+", type=Path, metavar="PAGE", help="MyST (.md), percent scripts (.py) or .ipynb."),
        argument("-o", "--output", type=Path, metavar="FOLDER", help="Where to write; site by default."),
        argument(
            "--format",
            dest="formats",
            metavar="FORMATS",
            help="With commas: md (for Sphinx), html (one file), ipynb; all by default.",
        ),
        flag("--own-words", help="Also write and check notebooks in each framework's own code."),
        argument("-f", "--frameworks", metavar="NAMES", help="Only these, such as torch,jax; default: the page's."),
        argument(
            *("-e", "--env"),
            action="append",
            metavar="NAME=FOLDER",
            help="A framework's environment, or its Python, or 'here'.",
        ),
        argument("--records", type=Path, metavar="FOLDER", help="Where the records are; default: beside the page."),
        flag("--recorded", help="Run nothing: use the records as they are, and check no own words."),
        flag("--watch", help="Build again whenever a page's file changes, until Ctrl-C."),
    )(build)


def build(
    pages: list[Path],
    output: Path = Path("site"),
    formats: str = "md,html,ipynb",
    own_words: bool = False,
    frameworks: str | None = None,
    env: list[str] | None = None,
    records: Path | None = None,
    recorded: bool = False,
    watch: bool = False,
) -> int:
    """Write pages with tabs of all frameworks, and notebooks of each; run first what has changed.

    Exit code 1 if a cell fails, a framework has no record, or a notebook in own words fails.
    """
    from devshim.cli import building as code

    return code.main(pages, output, formats, own_words, frameworks, env or [], records, recorded, watch)
