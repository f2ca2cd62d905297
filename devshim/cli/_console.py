"""Printing: rich tables on a terminal, plain text to a pipe or a file.

Piped output has no colour codes, no drawn lines and no wrapped cells, so that it can be searched and compared.
rich is imported by the functions that need it: printing to a pipe does not.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from devshim.errors import DevshimError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from typing import TextIO

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    Cell = str | Sequence[tuple[str, str]]
    """Text of one or several lines; or a sequence of lines, each with its rich style."""

__all__ = [
    "Column",
    "Grid",
    "download_bar",
    "draw",
    "is_terminal",
    "print_error",
    "say",
    "show",
    "size",
    "spinner",
    "width",
    "write",
]


@dataclass(frozen=True)
class Column:
    """A column of a `Grid`.

    Attributes:
        name: Its heading.
        style: The rich style of its cells.
        no_wrap: True if its cells are never wrapped on a terminal.
        share: Its weight when columns with a share divide the free width.
    """

    name: str
    style: str = ""
    no_wrap: bool = False
    share: int | None = None


@dataclass
class Grid:
    """A table of text, independent of its presentation.

    Attributes:
        title: A line above it.
        columns: Its columns.
        rows: Its cells. None draws a line on a terminal, and is omitted in plain text.
        styles: The styles of words that denote a state, such as ``{"NO": "bold red"}``.
    """

    title: str
    columns: Sequence[Column]
    rows: list[Sequence[Cell] | None] = field(default_factory=list)
    styles: dict[str, str] = field(default_factory=dict)


_FORCING = ("FORCE_COLOR", "TTY_COMPATIBLE")
"""The environment variables that make rich treat a pipe as a terminal."""


def _is_pipe(stream: TextIO | None) -> bool:
    """Return True if rich would certainly not treat a stream as a terminal; this does not import rich."""
    if any(name in os.environ for name in _FORCING):
        return False
    try:
        return stream is None or not stream.isatty()
    except (AttributeError, ValueError):  # a replaced stream, or a closed one
        return False


def _console() -> Console:
    from rich.console import Console

    # A new one each time: sys.stdout may have been replaced. Automatic highlighting is off.
    return Console(highlight=False, markup=False)


def is_terminal() -> bool:
    """Return True if standard output is a terminal, or must behave like one (FORCE_COLOR)."""
    return not _is_pipe(sys.stdout) and _console().is_terminal


def width() -> int:
    """Return the terminal's width in characters."""
    return _console().width


def say(text: str = "", style: str = "") -> None:
    """Print a paragraph: wrapped and styled on a terminal, unchanged to a pipe."""
    if is_terminal():
        from rich.text import Text

        _console().print(Text(text, style))
    else:
        print(text)


def show(grid: Grid) -> None:
    """Print a table."""
    if is_terminal():
        _console().print(draw(grid))
    else:
        print("\n".join(_plain(grid)))


def draw(grid: Grid) -> Table:
    """Return a table for a terminal."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=Text(grid.title, "bold"), title_justify="left", box=box.HORIZONTALS, header_style="bold", expand=False
    )
    for column in grid.columns:
        # "fold" keeps every character of a line of code; rich's default would cut it off with an ellipsis.
        table.add_column(column.name, style=column.style, no_wrap=column.no_wrap, overflow="fold", ratio=column.share)
    table.expand = any(column.share is not None for column in grid.columns)
    for row in grid.rows:
        if row is None:
            table.add_section()
        else:
            table.add_row(*(_text(cell, grid.styles) for cell in row))
    return table


def _text(cell: Cell, styles: dict[str, str]) -> Text:
    from rich.text import Text

    if isinstance(cell, str):
        return Text(cell, styles.get(cell, ""))
    return Text("\n").join(Text(line, style) for line, style in cell)


def _lines(cell: Cell) -> list[str]:
    return (cell.splitlines() if isinstance(cell, str) else [line for line, _ in cell]) or [""]


def _plain(grid: Grid) -> Iterator[str]:
    """Yield the lines of a table, with columns separated by two spaces."""
    rows = [[column.name for column in grid.columns], *(row for row in grid.rows if row is not None)]
    split = [[_lines(cell) for cell in row] for row in rows]
    widths = [max(len(line) for row in split for line in row[i]) for i in range(len(grid.columns))]
    if grid.title:
        yield from (grid.title, "")
    for row in split:
        for i in range(max(len(cell) for cell in row)):
            cells = [cell[i] if i < len(cell) else "" for cell in row]
            yield "  ".join(cell.ljust(wide) for cell, wide in zip(cells, widths, strict=True)).rstrip()


def print_error(error: DevshimError) -> None:
    """Print an error's text to standard error, without a traceback."""
    from rich.console import Console
    from rich.text import Text

    # A notebook has a standard error, too: by default rich would display the text in the cell.
    console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True, force_jupyter=False)
    console.print(Text.assemble(("devshim: ", "bold red"), error.problem))
    if error.hint is not None:
        console.print(Text.assemble(("Hint: ", "bold"), error.hint))


@contextmanager
def spinner(what: str) -> Iterator[Callable[[str], None]]:
    """Show a spinner on standard error while a block runs, if that is a terminal.

    Standard output may be a pipe, as in ``devshim devices | less``. A notebook (`!devshim tour`) shows none.

    Yields:
        A function that changes the text beside the spinner.
    """
    if "JPY_PARENT_PID" in os.environ or _is_pipe(sys.stderr):
        yield lambda text: None
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda text: None
        return
    with console.status(Text(what), spinner="dots") as status:
        yield lambda text: status.update(Text(text))


@contextmanager
def download_bar(what: str) -> Iterator[tuple[Callable[[str], None], Callable[[int, int], None]]]:
    """Show a bar on a terminal while a block installs packages; lines of text in a notebook (`!devshim ...`).

    Yields:
        A function that changes the text beside the bar, and one that moves the bar to a number of bytes of a size.
    """
    if _is_pipe(sys.stderr) or not is_terminal():
        yield lambda text: None, lambda done, total: None
        return
    if "JPY_PARENT_PID" in os.environ:  # its output takes no cursor movements
        print(what, flush=True)
        yield lambda text: print(f"  {text}", flush=True), lambda done, total: None
        return
    from rich import progress
    from rich.console import Console

    columns = (progress.SpinnerColumn(), progress.TextColumn("{task.description}", markup=False))
    shown = (*columns, progress.BarColumn(), progress.TimeElapsedColumn())
    with progress.Progress(*shown, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield (
            lambda text: bar.update(task, description=f"{what}: {text}", completed=0, total=None),
            lambda done, total: bar.update(task, completed=done, total=total),
        )


def size(nbytes: int | None) -> str:
    """Return bytes as text with a binary unit; an empty text if they are unknown."""
    if nbytes is None:
        return ""
    amount, units = float(nbytes), ["B", "KiB", "MiB", "GiB", "TiB"]
    while amount >= 1024 and len(units) > 1:
        amount, _ = amount / 1024, units.pop(0)
    return f"{amount:.0f} {units[0]}" if amount >= 100 or units[0] == "B" else f"{amount:.1f} {units[0]}"


def require_folder(path: Path | None) -> None:
    """Refuse a file for ``--json`` in a missing folder, before a command does its work.

    Raises:
        DevshimError: The folder does not exist.
    """
    if path is not None and not path.parent.is_dir():
        msg = f"the folder {str(path.parent)!r} does not exist"
        raise DevshimError(msg, "create it, or pass another file to --json")


def write(path: Path, text: str) -> None:
    """Write the file that ``--json`` names.

    Raises:
        DevshimError: The file cannot be written.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        msg = f"{path} cannot be written: {error.strerror}"
        raise DevshimError(msg, "pass another file to --json") from error
