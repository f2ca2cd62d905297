"""`devshim compare`: the tours of several frameworks side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import devshim as ds
from devshim.cli import records
from devshim.cli._console import Column, Grid, is_terminal, say, show, width
from devshim.cli._tour_view import STATES, mark, summary
from devshim.cli.tour import Tour

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from devshim.cli.tour import StepResult

__all__ = ["main", "show_records"]

_CELL = 24
"""The characters that a framework's column needs for a line of code; a narrower table has a row for each framework."""


def main(files: Sequence[Path]) -> int:
    """Print several recorded tours as one table; return the exit code, 1 if a step fails."""
    tours = [_read(path) for path in files]
    steps = list({step.name: step for tour in tours for step in tour.steps}.values())
    wide = is_terminal() and width() >= _CELL * (len(tours) + 1)
    show(_columns(tours, steps) if wide else _rows(tours, steps))
    for tour in tours:
        say(summary(tour), "green" if tour.holds else "bold red")
        if tour.note:
            say(f"  {tour.note}", "dim")
    return 0 if all(tour.holds for tour in tours) else 1


def show_records() -> int:
    """Print the recorded native lines of every framework; return the exit code."""
    from devshim.cli.tour import chapter

    names = records.frameworks()
    wide = is_terminal() and width() >= _CELL * (len(names) + 1)
    columns = [Column(records.title(name), share=1) for name in names]
    grid = Grid("", [Column("Step", share=1), *columns] if wide else [Column("", no_wrap=True), Column("Line")])
    for i, step in enumerate(chapter(), 1):
        title = (f"{i}. {step.title}", "bold")
        native = [[(line, "cyan") for line in records.lines(name).get(step.name, [])] for name in names]
        if wide:
            grid.rows.append(([title, *((line, "bold") for line in step.lines)], *native))
        else:
            grid.rows.append(([title], ""))
            grid.rows.append(("devshim", [(line, "bold") for line in step.lines]))
            grid.rows += [(records.title(name), lines) for name, lines in zip(names, native, strict=True) if lines]
        grid.rows.append(None)
    show(grid)
    return 0


def _read(path: Path) -> Tour:
    try:
        return Tour.from_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        msg = f"{path} cannot be read: {error.strerror}"
        raise ds.DevshimError(msg, "create it with: devshim tour --json FILE") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        msg = f"{path} is not a recorded tour: {type(error).__name__}: {error}"
        raise ds.DevshimError(msg, "create one with: devshim tour --json FILE") from error


def _columns(tours: Sequence[Tour], steps: Sequence[StepResult]) -> Grid:
    """Return a table with a row for each step and a column for each framework."""
    columns = [Column("Step", share=1), *(Column(f"{tour.label}\n{tour.hardware}", share=1) for tour in tours)]
    grid = Grid("", columns)
    for i, step in enumerate(steps, 1):
        first = [(f"{i}. {step.title}", "bold"), *((line, "bold") for line in step.code)]
        grid.rows += [(first, *(_cell(_find(tour, step)) for tour in tours)), None]
    return grid


def _cell(step: StepResult | None) -> list[tuple[str, str]]:
    if step is None:
        return [("-", "")]
    return [(mark(step), STATES[mark(step)]), *_native(step)]


def _native(step: StepResult) -> list[tuple[str, str]]:
    """Return the native lines, and the result if the step failed or was left out."""
    lines = [] if step.holds else [(step.result, "")]
    return [*((line, "cyan") for line in step.native), *lines]


def _rows(tours: Sequence[Tour], steps: Sequence[StepResult]) -> Grid:
    """Return a table with a row for each framework under each step, for narrow terminals and for pipes."""
    columns = [
        Column("Framework", no_wrap=True),
        Column("GPUs", no_wrap=True),
        Column("OK", no_wrap=True),
        Column("Line"),
    ]
    grid = Grid("", columns, styles=STATES)
    for i, step in enumerate(steps, 1):
        grid.rows.append(([(f"Step {i}", "bold")], "", "", [(step.title, "bold")]))
        grid.rows.append(([("devshim", "bold")], "", "", [(line, "bold") for line in step.code]))
        for tour in tours:
            played = _find(tour, step)
            if played is not None:
                grid.rows.append((tour.label, _cards(tour), mark(played), _native(played)))
        grid.rows.append(None)
    return grid


def _cards(tour: Tour) -> str:
    return f"{tour.cards} simulated" if tour.simulated else f"{tour.cards} real" if tour.cards else "none"


def _find(tour: Tour, step: StepResult) -> StepResult | None:
    return next((each for each in tour.steps if each.name == step.name), None)
