"""Tests of the cells of a record, made from the outputs of a kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from devshim.tutorial.outputs import cell_record, message_of, record_of
from devshim.tutorial.page import Cell, Page
from devshim.tutorial.record import MIME, CellRecord

CELLS = (Cell("a", 1, "x"), Cell("b", 2, "y", tags=("raises-exception",)), Cell("c", 3, "z"))
ERROR = {
    "output_type": "error",
    "ename": "ValueError",
    "evalue": "\x1b[31mno\x1b[0m",
    "traceback": ["\x1b[31mFile /home/someone\x1b[0m", "ValueError: no"],
}


def sent(**message: Any) -> dict[str, Any]:
    return {"output_type": "display_data", "data": {MIME: message}, "metadata": {}}


def call(count: int | None, span: list[int] | None = None) -> dict[str, Any]:
    return {"call": "place", "text": "x.cuda()", "span": span, "execution_count": count, "times": 2}


def test_the_message_of_the_kernel_is_not_an_output() -> None:
    shown = {"output_type": "execute_result", "data": {"text/plain": "1"}, "metadata": {}, "execution_count": 3}
    record = cell_record(CELLS[0], [sent(seconds=0.5, value={"kind": "none"}, names={}, calls=[]), shown], CELLS)
    assert (record.status, record.seconds, record.value) == ("ok", 0.5, {"kind": "none"})
    assert record.outputs == ({**shown, "execution_count": None},)
    assert message_of([shown]) == {}


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("a\rb\n", "b\n"),
        ("1 of 2\r2 of 2\r\ndone", "2 of 2\ndone"),
        ("abc\r", "abc\r"),
        ("a\r\rb\rc\r\r", "c\r\r"),
        ("\r\ra", "a"),
        ("x" * 10_000_000, "x" * 10_000_000),  # in a time that grows with the length, not with its square
    ],
    ids=range(6),
)
def test_printed_lines_are_as_a_terminal_shows_them_in_the_end(printed: str, shown: str) -> None:
    output = {"output_type": "stream", "name": "stdout", "text": printed}
    assert cell_record(CELLS[0], [output], CELLS).stdout == shown


@pytest.mark.parametrize(("cell", "status", "lines"), [(CELLS[0], "failed", 2), (CELLS[1], "raised", 1)])
def test_an_error_has_no_colours_and_a_traceback_only_if_it_is_a_failure(cell: Cell, status: str, lines: int) -> None:
    record = cell_record(cell, [ERROR], CELLS)
    assert (record.status, record.error) == (status, "ValueError: no")
    assert len(record.outputs[0]["traceback"]) == lines
    assert "\x1b" not in "".join(record.outputs[0]["traceback"])


def test_a_call_is_in_its_cell_or_in_that_of_a_function() -> None:
    calls = [call(2, [1, 1, 0, 4]), call(1, [3, 3, 0, 4]), call(None), call(9, [1, 1, 0, 1])]
    record = cell_record(CELLS[1], [sent(calls=calls)], CELLS)
    assert [(each.span, each.cell) for each in record.calls] == [
        ((1, 1, 0, 4), None),
        ((3, 3, 0, 4), "a"),
        (None, None),
        (None, None),
    ]
    assert {each.times for each in record.calls} == {2}


def test_cells_that_did_not_run_are_skipped() -> None:
    page = Page(Path("page.md"), "Title", ("torch",), 2, CELLS)
    facts = {"title": "PyTorch", "version": "1", "devshim": "1", "python": "3.11", "simulated": True}
    record = record_of(page, "torch", facts, [CellRecord("failed")])
    assert [each.status for each in record.cells.values()] == ["failed", "skipped", "skipped"]
    assert record.is_of(page)
    assert not record.ok
