"""`devshim tour --compare`: the tours of several frameworks side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import devshim as ds
from devshim.cli._console import Column, Grid, is_terminal, say, show, width
from devshim.cli._tour_view import STATES, mark, summary
from devshim.cli.tour import Tour

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from devshim.cli.tour import Played

__all__ = ["main"]

_CELL = 24
"""Characters a framework's column needs to show a line of code; with less the table has a row for each instead."""


def main(files: Sequence[Path]) -> int:
    """Print several recorded tours as one table; return the exit code, 1 where a step does not hold."""
    tours = [_read(path) for path in files]
    steps = list({step.name: step for tour in tours for step in tour.steps}.values())
    wide = is_terminal() and width() >= _CELL * (len(tours) + 1)
    show(_columns(tours, steps) if wide else _rows(tours, steps))
    for tour in tours:
        say(summary(tour), "green" if tour.holds else "bold red")
        if tour.note:
            say(f"  {tour.note}", "dim")
    return 0 if all(tour.holds for tour in tours) else 1


def _read(path: Path) -> Tour:
    try:
        return Tour.from_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ds.DevshimError(
            f"{path} cannot be read: {error.strerror}", "make it: devshim tour --json FILE"
        ) from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ds.DevshimError(
            f"{path} is no record of a tour: {type(error).__name__}: {error}", "make one: devshim tour --json FILE"
        ) from error


def _heading(tour: Tour) -> str:
    return f"{tour.label}\n{tour.hardware}"


def _columns(tours: Sequence[Tour], steps: Sequence[Played]) -> Grid:
    """A row for each step, a column for each framework."""
    columns = [Column("Step", "bold", share=1), *(Column(_heading(tour), share=1) for tour in tours)]
    grid = Grid("", columns)
    for i, step in enumerate(steps, 1):
        cells = (_cell(_find(tour, step)) for tour in tours)
        grid.rows += [(f"{i}. {step.title}\n{chr(10).join(step.code)}", *cells), None]
    return grid


def _cell(step: Played | None) -> str:
    if step is None:
        return ""
    told = "" if step.holds else step.result
    return "\n".join(filter(None, [mark(step), *step.native, told]))


def _rows(tours: Sequence[Tour], steps: Sequence[Played]) -> Grid:
    """A row for each framework, under each step: for terminals too narrow for a column each, and for pipes."""
    columns = [
        Column("Step", "bold", share=2),
        Column("Framework", whole=True),
        Column("Holds", whole=True),
        Column("Its own lines", "cyan", share=4),
    ]
    grid = Grid("", columns, styles=STATES)
    for i, step in enumerate(steps, 1):
        title = f"{i}. {step.title}"
        for tour in tours:
            played = _find(tour, step)
            if played is not None:
                told = played.native if played.holds else [*played.native, f"({played.result})"]
                grid.rows.append((title, tour.label, mark(played), "\n".join(told)))
                title = "" if is_terminal() else title
        grid.rows.append(None)
    return grid


def _find(tour: Tour, step: Played) -> Played | None:
    return next((each for each in tour.steps if each.name == step.name), None)
