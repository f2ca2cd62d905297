"""The plots of the page, as small SVG files that are identical for the same numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.record import Record, Row

STYLE = {"svg.fonttype": "none", "svg.hashsalt": "devshim", "font.size": 9, "axes.spines.top": False}
STYLE |= {"axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.3, "font.family": "sans-serif"}
MET = {"yes": "tab:green", "no": "tab:red", "unclear": "tab:orange", "": "tab:grey"}


def draw(records: Sequence[Record], folder: Path) -> None:
    """Write all plots into a folder."""
    for name, plot in (("place", place), ("growth", growth), ("peers", peers)):
        with mpl.rc_context(STYLE):
            figure = plot(records)
            figure.savefig(folder / f"benchmarks-{name}.svg", metadata={"Date": None, "Creator": None})


def place(records: Sequence[Record]) -> Any:
    """Plot ratios to the native call when nothing moves, each with its target."""
    rows = _rows(records, lambda row: row.target is not None and not row.peer and row.group in ("place", "device_of"))
    figure, axes = _bars(rows, [f"{record.environment}: {row.ours} / {row.rival}" for record, row in rows])
    for y, (_, row) in enumerate(reversed(rows)):
        axes.plot([row.target, row.target], [y - 0.45, y + 0.45], color="black", linewidth=1.5)
    axes.set_xlabel("devshim's time over the native call's; black: the target")
    return figure


def peers(records: Sequence[Record]) -> Any:
    """Plot ratios to other libraries."""
    rows = _rows(records, lambda row: row.peer)
    figure, axes = _bars(
        rows, [f"{record.environment}: {row.case}, {row.rival.partition(':')[0]}" for record, row in rows]
    )
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xlabel("devshim's time over the other library's")
    return figure


def growth(records: Sequence[Record]) -> Any:
    """Plot time and memory per leaf over the number of leaves."""
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    panels = {"there already": "ns per leaf", "copied": "ns per leaf", "there already, memory": "bytes per leaf"}
    for axes, (name, unit) in zip(figure.subplots(1, len(panels)), panels.items(), strict=True):
        for record in records:
            points = record.series.get(name, [])
            if points:
                axes.plot(*zip(*points, strict=True), marker="o", markersize=3, label=record.environment)
        axes.set(xscale="log", yscale="log", title=name, xlabel="leaves", ylabel=unit)
        axes.minorticks_off()
    axes.legend(fontsize=7)
    return figure


def _rows(records: Sequence[Record], wanted: Any) -> list[tuple[Record, Row]]:
    return [(each, row) for each in records for row in each.rows if row.value is not None and wanted(row)]


def _bars(rows: Sequence[tuple[Record, Row]], labels: Sequence[str]) -> tuple[Any, Any]:
    """Draw horizontal bars on a logarithmic axis, coloured by whether the target is met."""
    figure = Figure(figsize=(9, 0.8 + 0.2 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    values = [row.value for _, row in reversed(rows)]
    axes.barh(range(len(rows)), values, color=[MET[row.met] for _, row in reversed(rows)])
    axes.set_yticks(range(len(rows)), list(reversed(labels)), fontsize=7)
    axes.set_xscale("log")
    axes.minorticks_off()
    axes.grid(axis="y", visible=False)
    return figure, axes
