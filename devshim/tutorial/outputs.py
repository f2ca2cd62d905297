"""Turn the executed cells of a notebook into the cells of a record."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from devshim.tutorial.record import MIME, Call, CellRecord, Record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from devshim.tutorial.page import Cell, Page

__all__ = ["ANSI", "cell_record", "message_of", "record_of"]

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
"""The codes with which programs colour their text, and make links of it."""
_FILE = re.compile(r"\((?:\d+\.py|<unknown>|<ipython-input[^>]*>), line (\d+)\)$")
"""The file that IPython makes of a cell, as a syntax error names it."""


def record_of(page: Page, framework: str, facts: Mapping[str, Any], cells: Sequence[CellRecord]) -> Record:
    """Return the record of a run; cells that did not run are skipped."""
    found = page.cells_of(framework)
    rest = [CellRecord("skipped")] * (len(found) - len(cells))
    named = {cell.id: each for cell, each in zip(found, [*cells, *rest], strict=True)}
    return Record(framework=framework, gpus=page.gpus, code=page.digest(framework), cells=named, **facts)


def message_of(outputs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what the kernel recorded of a cell; empty if it sent nothing."""
    found = [each["data"][MIME] for each in outputs if MIME in each.get("data", {})]
    return dict(found[-1]) if found else {}


def cell_record(cell: Cell, outputs: Sequence[Mapping[str, Any]], cells: Sequence[Cell]) -> CellRecord:
    """Return the record of a cell.

    Args:
        cell: The cell.
        outputs: Its outputs in a notebook.
        cells: All cells that this framework runs, in order.
    """
    message = message_of(outputs)
    kept = _join_streams([_clean(each) for each in outputs if MIME not in each.get("data", {})])
    raised = any(each["output_type"] == "error" for each in kept)
    status = "ok" if not raised else "raised" if cell.may_raise else "failed"
    if status != "failed":
        kept = [_short(each) if each["output_type"] == "error" else each for each in kept if not _is_stderr(each)]
    return CellRecord(
        status=status,
        seconds=message.get("seconds", 0.0),
        outputs=tuple(kept),
        value=message.get("value"),
        names=message.get("names", {}),
        calls=tuple(_call(each, cell, cells) for each in message.get("calls", ())),
    )


def _call(read: Mapping[str, Any], cell: Cell, cells: Sequence[Cell]) -> Call:
    rest = {key: value for key, value in read.items() if key not in ("execution_count", "span")}
    span, count = read.get("span"), read.get("execution_count")
    at = None if count is None else count - 1
    if span is None or at is None or not 0 <= at < len(cells):
        return Call(**rest)
    return Call(**rest, span=tuple(span), cell=None if cells[at] is cell else cells[at].id)


def _clean(output: Mapping[str, Any]) -> dict[str, Any]:
    """Return an output as plain data, without colour codes in errors and without execution counts."""
    found: dict[str, Any] = _plain(output)
    if found["output_type"] == "error":
        found["evalue"] = _FILE.sub(r"(line \1 of the cell)", ANSI.sub("", found["evalue"]))
        found["traceback"] = [ANSI.sub("", line) for line in found["traceback"]]
    if found["output_type"] == "execute_result":
        found["execution_count"] = None
    return found


def _join_streams(outputs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return outputs with the text printed between two others as one output, as a terminal finally shows it.

    The kernel sends printed text in pieces, several times a second: where they end is chance.
    """
    found: list[dict[str, Any]] = []
    printed: dict[str, dict[str, Any]] = {}
    for output in outputs:
        if output["output_type"] != "stream":
            found += [*printed.values(), output]
            printed = {}
        elif output["name"] in printed:
            printed[output["name"]]["text"] += output["text"]
        else:
            printed[output["name"]] = output
    found += printed.values()
    for output in found:
        if output["output_type"] == "stream":
            output["text"] = "\n".join(map(_at_the_end, output["text"].replace("\r\n", "\n").split("\n")))
    return found


def _at_the_end(line: str) -> str:
    """Return a line without what a terminal overwrites: a progress bar prints its line again and again."""
    return line[line.rstrip("\r").rfind("\r") + 1 :]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, (list, tuple)) else value


def _is_stderr(output: Mapping[str, Any]) -> bool:
    """Return True for warnings and tracebacks, which have times, and paths of this machine: a record is published."""
    return (output["output_type"], output.get("name")) == ("stream", "stderr")


def _short(output: dict[str, Any]) -> dict[str, Any]:
    """Return an error that a page shows on purpose without its traceback, which has the paths of this machine."""
    return {**output, "traceback": [f"{output['ename']}: {output['evalue']}"]}
