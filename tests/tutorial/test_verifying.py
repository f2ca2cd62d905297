"""Tests of the check of notebooks in own code: what is the same, what differs, and what fails."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import recorded_page

from devshim.tutorial.building.slots import Shown
from devshim.tutorial.record import CellRecord, load_all
from devshim.tutorial.transpiler import verifying


@pytest.fixture
def shown(tmp_path: Path) -> Shown:
    page = recorded_page.write(tmp_path)
    return Shown(page, load_all(page))


def judged(shown: Shown, number: int, **changes: Any) -> verifying.Verdict:
    """Return the verdict of a notebook that did the same as the page, except one cell."""
    record = shown.records["torch"]
    cell = shown.page.cells_of("torch")[number]
    cells = {**record.cells, cell.id: replace(record.cells[cell.id], **changes)}
    return verifying.judge(shown, "torch", replace(record, cells=cells))


def test_the_same_results(shown: Shown) -> None:
    verdict = judged(shown, 0)
    assert not verdict.differences
    assert not verdict.failed


def test_another_number_differs(shown: Shown) -> None:
    value = {**shown.records["torch"].cells[shown.page.cells[1].id].names["X"], "numbers": [2.0] * 6}
    ((cell, found),) = judged(shown, 1, value=value).differences.items()
    assert cell is shown.page.cells[1]
    assert found[0].startswith("the numbers of the value differ")


def test_after_a_draw_numbers_may_differ_but_no_devices(shown: Shown) -> None:
    cell = shown.page.cells[1]
    record = shown.records["torch"].cells[cell.id]
    draw = recorded_page.Call("uniform", "torch.rand()", (1, 1, 4, 35), "gpu:1")
    shown.records["torch"].cells[cell.id] = replace(record, calls=(draw,))
    value = {**record.names["X"], "numbers": [2.0] * 6}
    assert not judged(shown, 1, value=value).differences
    assert judged(shown, 1, value={**value, "device": "cpu"}).differences


def test_in_a_cell_that_may_differ_text_and_numbers_are_not_compared(shown: Shown) -> None:
    cell = shown.page.cells[1]
    parts = tuple(replace(each, tags=("differs",)) if each is cell else each for each in shown.page.parts)
    page = Shown(replace(shown.page, parts=parts), shown.records)
    value = {**shown.records["torch"].cells[cell.id].names["X"], "numbers": [2.0] * 6}
    text = ({"output_type": "stream", "name": "stdout", "text": "0.3 ms"},)
    assert judged(shown, 1, value=value, outputs=text).differences
    assert not judged(page, 1, value=value, outputs=text).differences
    assert judged(page, 1, value={**value, "device": "cpu"}).differences


def test_a_cell_that_raises_fails(shown: Shown) -> None:
    error = {"output_type": "error", "ename": "NameError", "evalue": "ds", "traceback": []}
    assert judged(shown, 0, status="failed", outputs=(error,)).failed == (shown.page.cells[0],)


def test_a_set_up_that_raises_fails(shown: Shown) -> None:
    record = shown.records["torch"]
    cells = {"own-words": CellRecord("failed"), **dict.fromkeys(record.cells, CellRecord("skipped"))}
    assert len(verifying.judge(shown, "torch", replace(record, cells=cells)).failed) == len(record.cells)


def test_an_error_has_the_words_of_the_framework(shown: Shown) -> None:
    error = {"output_type": "error", "ename": "RuntimeError", "evalue": "no GPU", "traceback": []}
    assert not judged(shown, 2, outputs=(error,)).differences
    assert judged(shown, 2, status="ok", outputs=()).differences


DEVICES = {
    "(Device('gpu', 1), Device('cpu'))": "(gpu:1, cpu)",
    "device(type='cuda', index=1) cuda:1 cpu": "gpu:1 gpu:1 cpu",
    "device='sim:0')": "device='gpu:0')",
    "/job:localhost/replica:0/task:0/device:GPU:1 /CPU:0": "gpu:1 cpu",
    "Place(gpu:1) Place(sim_gpu:0) Place(cpu)": "gpu:1 gpu:0 cpu",
    "gpu(1) cpu(0)": "gpu:1 cpu",
    "[CudaDevice(id=0), TFRT_CPU_0]": "[gpu:0, cpu]",
}


@pytest.mark.parametrize("text", DEVICES)
def test_devices_in_text(text: str) -> None:
    assert verifying.neutral_text(text) == DEVICES[text]


def test_a_page_of_the_notebooks(shown: Shown) -> None:
    page = verifying.page_of(shown, ("torch", "jax"))
    setup, *cells = page.cells_of("jax")
    assert "import jax" in setup.source
    assert [cell.id for cell in cells] == [cell.id for cell in shown.page.cells_of("jax")]
    assert "import torch" in page.cells_of("torch")[0].source
