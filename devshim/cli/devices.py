"""`devshim devices`: every device of every installed framework in one table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from devshim.cli._ask import ask, find_installed
from devshim.cli._console import Column, Grid, is_terminal, say, show, size, width

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devshim.cli._ask import Answer

__all__ = ["main"]

_WIDE = 150
"""The number of characters from which a terminal is wide enough for UUIDs."""


def main(backend: str | None, as_json: bool = False) -> int:
    """Print the devices, as a table or as JSON; return the exit code, 1 if a framework is broken."""
    answers = ask(find_installed(backend))
    if as_json:
        print(json.dumps([_to_json(answer) for answer in answers], indent=2))
        return 1 if any(answer.broken is not None for answer in answers) else 0
    show(_grid(answers, everything=not is_terminal() or width() >= _WIDE))
    simulated = sum(each["simulated"] for answer in answers for each in answer.devices)
    if simulated:
        say(
            f"{simulated} of these devices are simulated: they hold real data, and the CPU computes.",
            "yellow",
        )
    for answer in answers:
        if answer.broken is not None:
            say(f"{answer.info.title} is broken: {answer.broken}", "bold red")
    if not any(answer.gpus for answer in answers):
        say("No GPU was found; `devshim doctor` shows why, and DEVSHIM_SIMULATE_GPUS=2 simulates two.")
    return 1 if any(answer.broken is not None for answer in answers) else 0


def _to_json(answer: Answer) -> dict[str, Any]:
    """Return a framework's devices in the form that JSON shows."""
    info = answer.info
    about = {"framework": info.name, "title": info.title, "version": info.version, "broken": answer.broken}
    return {**about, "why_no_more": answer.why, "devices": answer.devices}


def _grid(answers: Sequence[Answer], everything: bool) -> Grid:
    platforms = any(answer.platforms for answer in answers)  # of GPUs; that of the host is always the CPU
    columns = [
        Column("Framework", "bold"),
        Column("Device", no_wrap=True),
        Column("Native name", "cyan"),
        Column("Model"),
        *([Column("Platform", no_wrap=True)] if platforms else []),
        Column("Memory", no_wrap=True),
        Column("Used", no_wrap=True),
        Column("Compute", no_wrap=True),
        *([Column("UUID")] if everything else []),
        Column("Simulated", no_wrap=True),
    ]
    grid = Grid("", columns, styles={"simulated": "yellow", "broken": "bold red"})
    for answer in answers:
        label = f"{answer.info.title} {answer.info.version or ''}".rstrip()
        if answer.broken is not None:
            grid.rows += [(label, "broken", *[""] * (len(columns) - 2)), None]
            continue
        for i, each in enumerate(answer.devices):
            cells = _cells(each)
            shown = [*cells[:3], *([_platform(each)] if platforms else []), *cells[3 : 6 + everything], cells[-1]]
            grid.rows.append((label if i == 0 or not is_terminal() else "", *shown))
        grid.rows.append(None)
    return grid


def _platform(each: dict[str, Any]) -> str:
    return "" if each["device"] == "cpu" else each.get("platform", "")


def _cells(each: dict[str, Any]) -> list[str]:
    capability = each["capability"]
    return [
        each["device"],
        each["native"],
        each["name"],
        size(each["memory"]),
        size(each["used"]),
        "" if capability is None else ".".join(str(part) for part in capability),
        each["uuid"] or "",
        "simulated" if each["simulated"] else "no",
    ]
