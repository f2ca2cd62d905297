"""Tests of conversions between all frameworks: each is right or refused, as published; and that the sweep can fail."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import devshim as ds

sys.path.insert(0, str(Path(__file__).with_name("conversions")))

from cells import BACKENDS, Cell, Task
from judge import judge
from page import page
from pool import Results, Worker, sweep
from record import read, record, versions, wrong
from sides import NumpySide, TorchSide

DOCS = Path(__file__).parents[2] / "docs"
AGAIN = "run `nox -s conversions`"


@pytest.fixture(scope="module")
def results() -> Results:
    """Return all conversions, run in separate processes."""
    return sweep()


def test_every_conversion_is_right_or_refused(results: Results) -> None:
    assert len(results) == 2 * len(BACKENDS) ** 2
    found = wrong(results)
    assert not found, "\n".join(found[:50])


def test_what_is_published_is_what_they_do(results: Results) -> None:
    kept = read(DOCS / "conversions.json")
    assert record(results, versions()) == kept, AGAIN
    assert (DOCS / "conversions.md").read_text(encoding="utf-8") == page(kept), AGAIN


# ---------------------------------------------------------------------------- the sweep can fail

CONVERT = ds.convert
CELL = Cell("contiguous", "float32", None)
TO_TORCH = Task("numpy", "torch", False)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that judges a cell with another `ds.convert`, and returns what was wrong."""
    sides = {"torch": TorchSide(), "numpy": NumpySide()}

    def judged(convert: Any, cell: Cell = CELL, task: Task = TO_TORCH) -> str:
        monkeypatch.setattr(ds, "convert", convert)
        outcome, why = judge(task, cell, sides)
        return why if outcome == "wrong" else outcome

    return judged


def _altered(change: Any) -> Any:
    return lambda *args, **options: change(CONVERT(*args, **options))


def test_a_sweep_finds_results_that_are_others(said: Any) -> None:
    torch = ds.framework("torch")
    assert said(CONVERT) == "shared"
    assert "is a ndarray" in said(lambda x, *args, **options: x.copy())
    assert "other dtype" in said(_altered(lambda y: y.double()))
    assert "other shape" in said(_altered(lambda y: y[1:]))
    assert "other values" in said(_altered(lambda y: torch.nan_to_num(y)))
    assert "asks for a gradient" in said(_altered(lambda y: y.requires_grad_()))
    assert said(_altered(lambda y: 1 / 0)).startswith("ZeroDivisionError")


def test_a_sweep_finds_memory_that_is_shared_or_not(said: Any) -> None:
    assert "copy=True, and the memory is shared" in said(
        lambda x, b, d, copy: CONVERT(x, b, d), Cell("contiguous", "float32", True)
    )
    assert "copy=False, and the memory is another" in said(
        lambda x, b, d, copy: CONVERT(x, b, d, copy=True), Cell("contiguous", "float32", False)
    )

    def unmarked(x: Any, backend: str, device: Any, copy: bool | None) -> Any:
        x.flags.writeable = True
        y = CONVERT(x, backend, device)
        x.flags.writeable = False
        return y

    assert "stands behind a tensor that can be" in said(unmarked, Cell("read-only", "float32", None))


def test_a_sweep_finds_a_source_that_changed(said: Any) -> None:
    def spoiled(x: Any, backend: str, device: Any, copy: bool | None) -> Any:
        with ds.using("torch"):
            y = ds.from_numpy(x)
        x[0] = 0
        return y

    assert "the source, afterwards," in said(spoiled)


def test_a_sweep_finds_memory_that_goes_with_its_source(said: Any) -> None:
    torch = ds.framework("torch")

    def dangling(x: Any, backend: str, device: Any, copy: bool | None) -> Any:
        import ctypes

        memory = (ctypes.c_char * x.nbytes).from_address(x.ctypes.data)
        return torch.frombuffer(memory, dtype=torch.float32).reshape(x.shape)

    assert "after its source was freed" in said(dangling)


def test_a_sweep_finds_results_that_cannot_be_computed_with(said: Any) -> None:
    torch = ds.framework("torch")

    class Adding(torch.Tensor):  # type: ignore[misc]
        def __add__(self, other: Any) -> Any:
            return torch.zeros(self.shape)

    class AddingInPlace(torch.Tensor):  # type: ignore[misc]
        def __iadd__(self, other: Any) -> Any:
            return self

    class Multiplying(torch.Tensor):  # type: ignore[misc]
        def __matmul__(self, other: Any) -> Any:
            return torch.zeros(1, 1)

    cell = Cell("16 bytes on", "float32", None)
    assert said(CONVERT, cell) == "shared"
    assert said(CONVERT, Cell("3 bytes on", "float32", None)) == "copied"
    for kind in (Adding, AddingInPlace, Multiplying):
        assert "computes something else" in said(_altered(lambda y, kind=kind: y.as_subclass(kind)), cell)


def test_a_sweep_finds_errors_that_do_not_help(said: Any) -> None:
    def raising(error: Exception) -> Any:
        def convert(*args: Any, **options: Any) -> Any:
            raise error

        return convert

    assert said(raising(ds.ConversionError("no", "do that"))) == "refused"
    assert "neither what is wrong" in said(raising(ds.ConversionError("", "")))
    assert "a copy is refused" in said(raising(ds.CopyNeededError("no", "do that")))
    assert "what can be converted" in said(raising(ds.UnsupportedError("no", "do that")))


def test_a_sweep_goes_on_after_a_process_has_ended(tmp_path: Path) -> None:
    script = tmp_path / "worker.py"
    script.write_text(
        "import os, sys\n"
        "print('ready', flush=True)\n"
        "for line in sys.stdin:\n"
        "    begin = int(line.split()[2])\n"
        f"    for number in range(begin, {len(list(TO_TORCH.cells()))}):\n"
        "        if number == 3:\n"
        "            os.abort()\n"
        '        print(\'["copied", ""]\', flush=True)\n'
    )
    worker = Worker(False, script)
    found = worker.results(TO_TORCH)
    worker.stop()
    assert len(found) == len(list(TO_TORCH.cells()))
    assert [number for number, (_, outcome, _) in enumerate(found) if outcome != "copied"] == [3]
    assert "ended the process, with status -6" in found[3][2]


def test_outcomes_that_do_not_fit_together_are_reported() -> None:
    cells = [
        (Cell("contiguous", "float32", copy), outcome, "")
        for copy, outcome in ((None, "copied"), (False, "shared"), (True, "copied"))
    ]
    assert wrong({TO_TORCH: cells}) == [
        "numpy -> torch: ('contiguous', 'float32', 'cpu', None): copy=None, False and True are copied, shared, copied"
    ]
