"""Tests of the records of tutorial pages, and of the properties that are read from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from devshim.errors import DevshimError
from devshim.tutorial.page import Cell, Page
from devshim.tutorial.record import Call, CellRecord, Record, load, load_all, path_of

OUTPUTS = (
    {"output_type": "stream", "name": "stdout", "text": "one\n"},
    {"output_type": "stream", "name": "stderr", "text": "warning\n"},
    {"output_type": "stream", "name": "stdout", "text": "two\n"},
    {"output_type": "error", "ename": "ValueError", "evalue": "no", "traceback": []},
)
CALL = Call("place", 'x.to("cuda:1")', (1, 1, 4, 22), "gpu:1", '"cuda:1"', 1, "{x}.to({device})", {"x": "x"})
PAGE = Page(Path("page.md"), "Title", ("torch", "jax"), 2, (Cell("a", 1, "x"), Cell("b", 2, "y")))


def record(framework: str = "torch", **cells: CellRecord) -> Record:
    code = PAGE.digest(framework)
    return Record(framework, "PyTorch", "2.13.0", "0.1.0", "3.11.7", 2, True, code, 1.5, None, cells)


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    value = {"kind": "tensor", "shape": [2], "dtype": "float32", "device": "gpu:1", "numbers": [1.0, "nan"]}
    wrote = record(a=CellRecord("raised", 0.25, OUTPUTS, value, {"x": value}, (CALL, Call("", "# text"))))
    path = tmp_path / "new" / "torch.json"
    wrote.save(path)
    assert load(path) == wrote
    assert load(tmp_path / "none.json") is None


def test_what_was_printed_and_raised_is_found() -> None:
    cell = CellRecord("raised", 0.0, OUTPUTS)
    assert cell.stdout == "one\ntwo\n"
    assert cell.error == "ValueError: no"
    assert CellRecord("ok").error is None


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 99}', '{"format": 1}', '{"format": 1, "cells": {"a": 1}}']
)
def test_a_file_of_another_format_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "torch.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DevshimError, match="cannot be read") as caught:
        load(path)
    assert "remove it" in str(caught.value.hint)


def test_a_record_is_of_the_code_it_was_made_from() -> None:
    made = record(a=CellRecord("ok"), b=CellRecord("ok"))
    assert made.is_of(PAGE)
    changed = Page(PAGE.path, PAGE.title, PAGE.frameworks, 2, (Cell("a", 1, "x"), Cell("c", 2, "z")))
    assert not made.is_of(changed)
    assert not record(a=CellRecord("ok")).is_of(PAGE)


@pytest.mark.parametrize(("status", "ok"), [("ok", True), ("raised", True), ("failed", False), ("skipped", False)])
def test_a_run_is_ok_if_no_cell_failed(status: str, ok: bool) -> None:
    assert record(a=CellRecord("ok"), b=CellRecord(status)).ok is ok


def test_a_frameworks_record_is_a_file_of_its_own(tmp_path: Path) -> None:
    page = Page(tmp_path / "use-gpu.md", "Title", ("torch", "jax"), 2, PAGE.parts)
    assert path_of(page.path, "jax") == tmp_path / "use-gpu.records" / "jax.json"
    assert path_of(page.path, "jax", tmp_path / "x") == tmp_path / "x" / "use-gpu.records" / "jax.json"
    record("jax").save(path_of(page.path, "jax"))
    assert list(load_all(page)) == ["jax"]
    record("torch").save(path_of(page.path, "torch"))
    assert list(load_all(page)) == ["torch", "jax"]
