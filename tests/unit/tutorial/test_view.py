"""Tests of the table and the reports of `devshim tutorial`, in a pipe and on a terminal."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from devshim.cli import _tutorial_view as view
from devshim.cli import tutorial
from devshim.errors import DevshimError
from devshim.tutorial import comparing, session
from devshim.tutorial.page import Cell, Page
from devshim.tutorial.record import CellRecord, Record
from devshim.tutorial.session import Options, Outcome

ERROR = {
    "output_type": "error",
    "ename": "ValueError",
    "evalue": "no",
    "traceback": ["  Cell In[2], line 2\n    b()", "  File /lib.py:9, in b\n", "ValueError: no"],
}
PAGE = Page(
    Path("page.md"),
    "Title",
    ("torch", "jax", "numpy"),
    2,
    (
        Cell("a", 1, "import this\nx = 1", 5),
        Cell("b", 2, "a()\nb()", 10),
        Cell("c", 3, "torch", 15, (), ("torch",)),
        Cell("d", 4, "y", 20, ("differs",)),
    ),
)


def value(number: int) -> CellRecord:
    return CellRecord("ok", 0.5, value={"kind": "number", "value": number})


def record(name: str, title: str, *cells: CellRecord, problem: str | None = None) -> Record:
    ids = [cell.id for cell in PAGE.cells_of(name)]
    code = PAGE.digest(name)
    return Record(name, title, "1", "1", "3", 2, True, code, 2.0, problem, dict(zip(ids, cells, strict=True)))


RECORDS = {
    "torch": record("torch", "PyTorch", value(1), CellRecord("ok"), CellRecord("ok"), value(1)),
    "numpy": record("numpy", "NumPy", value(1), CellRecord("ok"), value(1)),
    "jax": record("jax", "JAX", value(2), CellRecord("ok"), value(2)),
}
FAILED = record("jax", "JAX", value(1), CellRecord("failed", 0.1, (ERROR,)), CellRecord("skipped"))


@pytest.fixture
def outcome(monkeypatch: pytest.MonkeyPatch) -> dict[str, Outcome]:
    """Return a dict whose ``page`` is the outcome that a command works with, instead of running anything."""
    known = {"page": Outcome(PAGE, RECORDS, frozenset({"numpy"}))}
    monkeypatch.setattr(session, "read_page", lambda path, options: PAGE)
    monkeypatch.setattr(session, "outcome_of", lambda page, options, watcher: known["page"])
    return known


@pytest.mark.usefixtures("outcome")
def test_the_table_has_a_row_for_each_cell(capsys: pytest.CaptureFixture[str]) -> None:
    assert tutorial.run([PAGE.path], Options()) == 0
    rows = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    cells = [[cell.strip() for cell in row if cell] for row in rows]
    assert cells[0] == ["line", "cell", "PyTorch", "JAX", "NumPy"]
    assert cells[1] == ["5", "x = 1", "ok 0.50 s", "differs 0.50 s", "ok 0.50 s"]
    assert cells[2] == ["10", "b()", "ok 0.00 s", "ok 0.00 s", "ok 0.00 s"]
    assert cells[3] == ["15", "torch", "ok 0.00 s", "-", "-"]
    assert cells[4] == ["20", "y", "ok 0.50 s", "may differ 0.50 s", "ok 0.50 s"]
    assert cells[5] == ["all", "2.0 s", "2.0 s", "unchanged"]


def test_a_cell_that_no_chosen_framework_runs_has_no_row() -> None:
    chosen = Page(PAGE.path, PAGE.title, ("jax", "numpy"), 2, PAGE.parts)
    rows = view.TableWatcher(chosen).grid().rows
    assert [row[0] for row in rows if row is not None] == ["5", "10", "20", ""]


@pytest.mark.usefixtures("outcome")
def test_check_names_the_place_and_the_odd_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert tutorial.check([PAGE.path], Options()) == 1
    out = capsys.readouterr().out
    assert "page.md:5: JAX differs; PyTorch and NumPy agree\n    x = 1\n  JAX: the value is 2, not 1\n" in out
    assert "page.md:20" not in out


def test_check_says_when_all_agree(outcome: dict[str, Outcome], capsys: pytest.CaptureFixture[str]) -> None:
    outcome["page"] = Outcome(PAGE, {name: RECORDS[name] for name in ("torch", "numpy")})
    assert tutorial.check([PAGE.path], Options()) == 0
    assert "2 frameworks agree in 3 cells" in capsys.readouterr().out


def test_a_failure_names_its_line_and_framework(
    outcome: dict[str, Outcome], capsys: pytest.CaptureFixture[str]
) -> None:
    outcome["page"] = Outcome(PAGE, {**RECORDS, "jax": FAILED})
    assert tutorial.run([PAGE.path], Options()) == 1
    out = capsys.readouterr().out
    assert "page.md:11: fails on JAX\n    b()\n    ValueError: no\n" in out
    assert "failed 0.10 s" in out
    assert "skipped" in out


def test_a_framework_that_cannot_run_is_reported(
    outcome: dict[str, Outcome], capsys: pytest.CaptureFixture[str]
) -> None:
    ended = record("jax", "JAX", *[CellRecord("skipped")] * 3, problem="the kernel was killed by SIGKILL")
    problem = DevshimError("NumPy cannot run: there is no environment for it", "devshim tutorial env create numpy")
    outcome["page"] = Outcome(PAGE, {"torch": RECORDS["torch"], "jax": ended}, problems={"numpy": problem})
    assert tutorial.run([PAGE.path], Options()) == 1
    captured = capsys.readouterr()
    assert "page.md: JAX cannot run the page\n    the kernel was killed by SIGKILL\n" in captured.out
    assert "no record" in captured.out
    assert "NumPy cannot run" in captured.err
    assert "Hint: devshim tutorial env create numpy" in captured.err


def test_an_interrupt_has_its_own_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(path: Path, options: Options) -> Page:
        raise KeyboardInterrupt

    monkeypatch.setattr(session, "read_page", interrupted)
    assert tutorial.run([PAGE.path], Options()) == 130


def test_the_table_grows_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "150")
    with view.live(PAGE) as watcher:
        watcher.started("torch")
        assert "starting" in capsys.readouterr().out
        watcher.cell("torch", PAGE.cells[0], value(1))
        shown = capsys.readouterr().out
        assert "running" in shown
        assert "ok 0.50 s" in shown
        watcher.finished("torch", RECORDS["torch"])
        watcher.compared(Outcome(PAGE, RECORDS), comparing.compare(PAGE, RECORDS))
        assert "differs 0.50 s" in capsys.readouterr().out


@pytest.mark.usefixtures("outcome")
def test_check_prints_json_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert tutorial.check([PAGE.path], Options(), Path("-")) == 1
    found = json.loads(capsys.readouterr().out)
    (page,) = found["pages"]
    assert (found["ok"], page["ok"], page["page"]) == (False, False, "page.md")
    assert {name: each["unchanged"] for name, each in page["frameworks"].items()} == {
        "torch": False,
        "jax": False,
        "numpy": True,
    }
    first, second, own, last = page["cells"]
    assert (first["line"], first["agree"], first["may_differ"]) == (5, False, False)
    assert (first["groups"], first["odd"]) == ([["torch", "numpy"], ["jax"]], ["jax"])
    assert first["differences"] == {"jax": ["the value is 2, not 1"]}
    assert (second["agree"], second["groups"]) == (True, [["torch", "numpy", "jax"]])
    assert (own["agree"], own["statuses"], own["groups"]) == (True, {"torch": "ok"}, [])
    assert (last["agree"], last["may_differ"]) == (False, True)


def test_check_writes_json_beside_the_table(
    outcome: dict[str, Outcome], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problem = DevshimError("NumPy cannot run: there is no environment for it", "devshim tutorial env create numpy")
    outcome["page"] = Outcome(PAGE, {"torch": RECORDS["torch"], "jax": FAILED}, problems={"numpy": problem})
    assert tutorial.check([PAGE.path], Options(), tmp_path / "result.json") == 1
    (page,) = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))["pages"]
    assert page["frameworks"]["numpy"] == {"ok": False, "problem": problem.problem}
    assert page["frameworks"]["jax"]["ok"] is False
    assert page["cells"][1]["statuses"] == {"torch": "ok", "jax": "failed"}
    assert "b()" in capsys.readouterr().out


def test_check_of_agreeing_frameworks_is_ok_in_json(
    outcome: dict[str, Outcome], capsys: pytest.CaptureFixture[str]
) -> None:
    outcome["page"] = Outcome(replace(PAGE, frameworks=("torch", "numpy")), {n: RECORDS[n] for n in ("torch", "numpy")})
    assert tutorial.check([PAGE.path], Options(), Path("-")) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["ok"], found["pages"][0]["ok"]) == (True, True)
