"""The presentation of a tour: a table on a terminal, paragraphs of plain text to a pipe."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

from devshim.cli import records
from devshim.cli._console import Column, Grid, is_terminal, say, width
from devshim.cli._console import show as show_grid

if TYPE_CHECKING:
    from devshim.cli.tour import StepResult, Tour

__all__ = ["STATES", "mark", "show", "summary"]

STATES = {"yes": "bold green", "NO": "bold red", "-": "yellow"}
"""The words for a step's outcome, and their colours; words, because not every reader can see colours."""

_WIDE = 140
"""The number of characters from which each field has its own column."""


def mark(step: StepResult) -> str:
    """Return a step's outcome: ``yes``, ``NO``, or ``-`` if it was left out."""
    return "-" if step.holds is None else "yes" if step.holds else "NO"


def show(tour: Tour) -> None:
    """Print a tour."""
    say(f"The GPU chapter of Dive into Deep Learning, and one on models, on {tour.label} with {tour.hardware}.", "bold")
    if tour.simulated:
        say("A simulated GPU stores real data and computes on the CPU.")
    if tour.note:
        say(f"There are fewer GPUs than the chapter needs: {tour.note}.", "yellow")
    if tour.backend == "numpy":
        shown = records.title(records.SHOWN)
        say(f"NumPy has one device, so the lines of {shown} are shown beside its own; `devshim compare` shows all.")
    say()
    if is_terminal():
        show_grid(_wide(tour) if width() >= _WIDE else _narrow(tour))
    else:
        for i, step in enumerate(tour.steps, 1):
            _paragraph(i, step, tour)
    say(summary(tour), "bold green" if tour.holds else "bold red")


def _wide(tour: Tour) -> Grid:
    """Return a table with a column for each field."""
    columns = [
        Column("", no_wrap=True),
        Column("Step", share=4),
        Column("devshim", "bold", share=4),
        Column("Native line", "cyan", share=4),
        Column("Result", share=4),
        Column("OK", no_wrap=True),
    ]
    grid = Grid(_title(tour), columns, styles=STATES)
    for i, step in enumerate(tour.steps, 1):
        lines = ["\n".join(step.code), "\n".join(_native(step, tour))]
        grid.rows += [(str(i), _lesson(step), *lines, step.result, mark(step)), None]
    return grid


def _narrow(tour: Tour) -> Grid:
    """Return a table with the devshim lines, the native lines and the result in one column."""
    columns = [
        Column("", no_wrap=True),
        Column("Step", share=2),
        Column(f"devshim, {'native' if tour.backend == 'numpy' else tour.title}, -> result", share=3),
        Column("OK", no_wrap=True),
    ]
    grid = Grid(_title(tour), columns, styles=STATES)
    for i, step in enumerate(tour.steps, 1):
        # Each line has a label, because not every reader can see colours.
        lines = [
            *((f"devshim: {line}", "bold") for line in step.code),
            *((line, "cyan") for line in _native(step, tour)),
        ]
        grid.rows += [(str(i), _lesson(step), [*lines, (f"-> {step.result}", "")], mark(step)), None]
    return grid


def _native_lines(step: StepResult, tour: Tour) -> list[tuple[str, list[str]]]:
    """Return the native lines to show, by framework; for NumPy, another framework's recorded lines are added."""
    found = [(tour.title, step.native)]
    if tour.backend == "numpy":
        found.append((records.title(records.SHOWN), records.lines(records.SHOWN).get(step.name, [])))
    return found


def _native(step: StepResult, tour: Tour) -> list[str]:
    return [f"{label}: {line}" for label, lines in _native_lines(step, tour) for line in lines]


def _lesson(step: StepResult) -> list[tuple[str, str]]:
    return [(step.title, "bold"), (step.teaches, "dim")]


def _title(tour: Tour) -> str:
    return f"{tour.label}, {tour.hardware}"


def _paragraph(i: int, step: StepResult, tour: Tour) -> None:
    print(f"{i}. {step.title}")
    for line in wrap(step.teaches, 100):
        print(f"   {line}")
    blocks = [("devshim", step.code), *_native_lines(step, tour)]
    name = max(len(label) for label, _ in blocks)
    for label, lines in blocks:
        for line in lines:
            print(f"   {label:<{name}}  {line}")
            label = ""
    for label, text in (("result", step.result), ("check", _verdict(step))):
        for line in wrap(text, 100, break_long_words=False) or [""]:
            print(f"   {label:<{name}}  {line}")
            label = ""
    print()


def _verdict(step: StepResult) -> str:
    return "- (left out)" if step.holds is None else f"{mark(step)}: {step.must}"


def summary(tour: Tour) -> str:
    """Return a sentence that says how many steps succeeded."""
    total = len(tour.steps)
    held = sum(step.holds is True for step in tour.steps)
    failed = [step.title for step in tour.steps if step.holds is False]
    left = total - held - len(failed)
    text = f"{held} of {total} steps passed on {tour.label} with {tour.hardware}"
    if left:
        text += f", {left} left out"
    if failed:
        text += f"; {len(failed)} FAILED: {', '.join(failed)}"
    return text + "."
