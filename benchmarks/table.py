"""The table that a run prints: target, measured value, and whether the target is met."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.record import Record, Row

COLOURS = {"yes": "green", "no": "red", "unclear": "yellow", "not measured": "dim"}


def number(row: Row) -> str:
    """Return the measured value, with the middle half of the measurements."""
    if row.value is None:
        return "not measured"
    text = f"{plain(row.value)}{' ' + row.unit if row.unit else ''}"
    if row.quartiles is not None:
        text += f" ({plain(row.quartiles[0])} to {plain(row.quartiles[1])})"
    return text


def goal(row: Row) -> str:
    """Return the target as text."""
    if row.target is None:
        return ""
    return f"at most {row.target:.3g}{' ' + row.unit if row.unit else ''}"


def plain(value: float) -> str:
    """Return a number with three digits, without an exponent."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def show(records: Sequence[Record], width: int = 160) -> str:
    """Return the results as a table for a terminal."""
    table = Table(title="devshim beside native calls and peers", title_justify="left", pad_edge=False)
    for name in ("", "case", "held against", "target", "measured", "met"):
        table.add_column(name, overflow="fold")
    for record in records:
        for row in record.rows:
            colour = COLOURS.get(row.met, "")
            met = f"[{colour}]{row.met}[/]" if colour else row.met
            table.add_row(record.environment, escape(row.case), escape(row.rival), goal(row), number(row), met)
        table.add_section()
    file = io.StringIO()
    Console(file=file, width=width, force_terminal=False, no_color=True).print(table)
    return file.getvalue()
