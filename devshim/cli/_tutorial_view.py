"""The table of `devshim tutorial run`, live on a terminal, and the reports below it."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live

from devshim.cli._console import Column, Grid, draw, is_terminal, say, show
from devshim.registry import discovery
from devshim.tutorial.running import Watcher

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.table import Table

    from devshim.tutorial.comparing import Comparison, Report
    from devshim.tutorial.page import Cell, Page
    from devshim.tutorial.record import CellRecord, Record
    from devshim.tutorial.session import Outcome

__all__ = ["TableWatcher", "live", "show_differences", "show_failures", "show_table"]

STYLES = {
    "ok": "green",
    "raised": "green",
    "may differ": "cyan",
    "differs": "bold yellow",
    "failed": "bold red",
    "skipped": "dim",
    "no record": "dim",
}
_CODE = 34


class TableWatcher(Watcher):
    """The state of a run, as a table with a row for each cell and a column for each framework."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._states: dict[tuple[str, str], tuple[str, float | None]] = {}
        self._totals: dict[str, str] = {}
        self._live: Live | None = None

    def started(self, framework: str) -> None:
        """Show that a framework starts."""
        self._totals[framework] = "starting"
        self._refresh()

    def cell(self, framework: str, cell: Cell, record: CellRecord) -> None:
        """Show that a cell is done."""
        self._totals[framework] = "running"
        self._states[framework, cell.id] = record.status, record.seconds
        self._refresh()

    def finished(self, framework: str, record: Record) -> None:
        """Show that a framework is done."""
        self._add(framework, record, f"{record.seconds:.1f} s")
        self._refresh()

    def compared(self, outcome: Outcome, report: Report) -> None:
        """Show the results after all frameworks are done and compared."""
        for name, record in outcome.records.items():
            self._add(name, record, "unchanged" if name in outcome.unchanged else f"{record.seconds:.1f} s")
        for name in outcome.problems:
            self._totals[name] = "cannot run"
            for cell in self._page.cells_of(name):
                self._states[name, cell.id] = "no record", None
        for cell_id, each in report.cells.items():
            marked = each.odd or tuple(name for group in each.groups for name in group if not each.agree)
            for name in marked:
                seconds = self._states[name, cell_id][1]
                self._states[name, cell_id] = "may differ" if each.ok else "differs", seconds
        self._refresh()

    def _add(self, framework: str, record: Record, total: str) -> None:
        self._totals[framework] = "failed" if record.problem else total
        for cell_id, each in record.cells.items():
            self._states[framework, cell_id] = each.status, each.seconds if each.status != "skipped" else None

    def _refresh(self) -> None:
        if self._live is not None:
            self._live.update(self.drawn(), refresh=True)

    def grid(self) -> Grid:
        """Return the table."""
        names = [Column(discovery.title_of(name), no_wrap=True) for name in self._page.frameworks]
        grid = Grid("", [Column("line", no_wrap=True), Column("cell", no_wrap=True), *names])
        for cell in self._page.cells:
            if not any(map(cell.runs_on, self._page.frameworks)):
                continue
            where = str(cell.line if cell.line is not None else cell.number)
            states = [self._state(name, cell) for name in self._page.frameworks]
            grid.rows.append((where, _code(cell), *states))
        grid.rows.append(None)
        grid.rows.append(("", "all", *([(self._totals.get(name, ""), "")] for name in self._page.frameworks)))
        return grid

    def _state(self, framework: str, cell: Cell) -> Sequence[tuple[str, str]]:
        if not cell.runs_on(framework):
            return [("-", "dim")]
        state, seconds = self._states.get((framework, cell.id), ("", None))
        return [(state if seconds is None else f"{state} {seconds:.2f} s", STYLES.get(state, ""))]

    def drawn(self) -> Table:
        """Return the table for a terminal."""
        return draw(self.grid())

    @contextmanager
    def on_terminal(self) -> Iterator[None]:
        """Show the table while a block runs; it is removed at the end."""
        if not is_terminal():
            yield
            return
        with Live(self.drawn(), console=Console(highlight=False), auto_refresh=False, transient=True) as shown:
            self._live = shown
            try:
                yield
            finally:
                self._live = None


def _code(cell: Cell) -> str:
    """Return the last line of a cell, shortened: the one whose value is shown."""
    lines = [line for line in cell.source.splitlines() if line.strip()]
    text = lines[-1].strip()
    return text if len(text) <= _CODE else text[: _CODE - 3] + "..."


@contextmanager
def live(page: Page) -> Iterator[TableWatcher]:
    """Show the progress of a run on a terminal; nothing in a pipe."""
    watcher = TableWatcher(page)
    with watcher.on_terminal():
        yield watcher


def show_table(watcher: TableWatcher) -> None:
    """Print the finished table."""
    show(watcher.grid())


def show_failures(outcome: Outcome) -> None:
    """Print each cell that failed: where, on which frameworks, and the error."""
    page = outcome.page
    for record in outcome.records.values():
        if record.problem is not None:
            say(f"{page.path}: {record.title} cannot run the page", "bold red")
            say(_indent(record.problem))
    for cell in page.cells:
        failed: dict[str, list[str]] = {}
        for record in outcome.records.values():
            each = record.cells.get(cell.id)
            if each is not None and each.status == "failed":
                failed.setdefault(_failure(page, cell, each), []).append(record.title)
        for text, titles in failed.items():
            where, _, error = text.partition("\n")
            say(f"{where}: fails on {_join(titles)}", "bold red")
            say(_indent(error))


def _failure(page: Page, cell: Cell, record: CellRecord) -> str:
    """Return where a cell failed, and the error on the next lines."""
    traceback = next("\n".join(each["traceback"]) for each in record.outputs if each["output_type"] == "error")
    found = re.search(r"(?:Cell In\[\d+\], line |<ipython-input[^>]*>:|In\[\d+\]:)(\d+)", traceback)
    lines = cell.source.splitlines()
    line = int(found[1]) if found else 1
    where = page.where(cell) if cell.line is None else f"{page.path}:{cell.line + line - 1}"
    shown = [lines[min(line, len(lines)) - 1].strip()] if found or len(lines) == 1 else []  # else it is not known
    return "\n".join([where, *shown, record.error or ""])


def show_differences(page: Page, report: Report) -> None:
    """Print each cell in which the frameworks differ undeclared: where, which is the odd one, and how."""
    for each in report.undeclared:
        say(f"{page.where(each.cell)}: {_verdict(each)}", "bold yellow")
        say(_indent(each.cell.source.splitlines()[-1].strip()))
        for names, found in _group(each):
            for sentence in found:
                say(f"  {_join(names)}: {sentence}")
    if report.undeclared:
        say("if a difference is meant, give the cell the tag differs; see also --rtol", "dim")


def _verdict(each: Comparison) -> str:
    if each.odd:
        return f"{_join(each.odd)} differ{'s' if len(each.odd) == 1 else ''}; {_join(each.groups[0])} agree"
    return "they differ: " + " / ".join(_join(group) for group in each.groups)


def _group(each: Comparison) -> list[tuple[list[str], tuple[str, ...]]]:
    found: dict[tuple[str, ...], list[str]] = {}
    for name, sentences in each.differences.items():
        found.setdefault(sentences, []).append(name)
    return [(names, sentences) for sentences, names in found.items()]


def _join(names: Sequence[str]) -> str:
    """Return names in their official spelling, as text."""
    titles = [discovery.title_of(name) for name in names]
    return titles[0] if len(titles) == 1 else f"{', '.join(titles[:-1])} and {titles[-1]}"


def _indent(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())
