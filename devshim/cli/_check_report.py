"""The result of `devshim tutorial check` as JSON, for programs such as an editor or a step of a CI job."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import devshim as ds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devshim.tutorial.comparing import Report
    from devshim.tutorial.page import Cell
    from devshim.tutorial.session import Outcome

__all__ = ["of_page", "to_json"]


def to_json(pages: Sequence[dict[str, Any]]) -> str:
    """Return the results of pages as JSON text."""
    whole = {"devshim": ds.__version__, "ok": all(each["ok"] for each in pages), "pages": pages}
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def of_page(outcome: Outcome, report: Report) -> dict[str, Any]:
    """Return the result of a page: its frameworks by name, and its cells in order."""
    page = outcome.page
    return {
        "page": str(page.path),
        "ok": outcome.ok and not report.undeclared,
        "frameworks": {name: _framework(outcome, name) for name in page.frameworks},
        "cells": [_cell(outcome, report, cell) for cell in page.cells if any(map(cell.runs_on, page.frameworks))],
    }


def _framework(outcome: Outcome, name: str) -> dict[str, Any]:
    record = outcome.records.get(name)
    if record is None:
        return {"ok": False, "problem": outcome.problems[name].problem}
    return {
        "ok": record.ok,
        "problem": record.problem,
        "version": record.version,
        "python": record.python,
        "simulated": record.simulated,
        "seconds": record.seconds,
        "unchanged": name in outcome.unchanged,
    }


def _cell(outcome: Outcome, report: Report, cell: Cell) -> dict[str, Any]:
    ran = {name: each.cells[cell.id] for name, each in outcome.records.items() if cell.id in each.cells}
    compared = report.cells.get(cell.id)
    return {
        "cell": cell.number,
        "line": cell.line,
        "may_differ": cell.may_differ,
        "statuses": {name: each.status for name, each in ran.items()},
        "errors": {name: each.error for name, each in ran.items() if each.error is not None},
        "agree": compared is None or compared.agree,
        "groups": [list(group) for group in compared.groups] if compared else [],
        "odd": list(compared.odd) if compared else [],
        "differences": {name: list(each) for name, each in compared.differences.items()} if compared else {},
    }
