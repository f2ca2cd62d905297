"""Tests of the names of a notebook's lines, with a stand-in for IPython."""

from __future__ import annotations

import linecache
import sys
import warnings
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import devshim as ds
from devshim.transfers import cells

FILE = "/tmp/ipykernel_71/2071649295.py"


def shell(monkeypatch: pytest.MonkeyPatch, numbers: dict[str, Any], label: str = "In[%s]") -> None:
    """Install a shell whose compiler knows the numbers of some files."""

    def format_code_name(name: str) -> tuple[str, str] | None:
        return ("Cell", label % numbers[name]) if name in numbers else None

    module = ModuleType("IPython")
    module.get_ipython = lambda: SimpleNamespace(  # type: ignore[attr-defined]
        compile=SimpleNamespace(format_code_name=format_code_name)
    )
    monkeypatch.setitem(sys.modules, "IPython", module)


def test_a_line_of_a_cell_has_the_number_that_the_notebook_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cells.line_name(FILE, 3) == f"{FILE}:3"
    shell(monkeypatch, {FILE: 8})
    assert cells.line_name(FILE, 3) == "In [8]:3"
    assert cells.line_name("train.py", 3) == "train.py:3"
    shell(monkeypatch, {FILE: 9}, "In [%s]")
    assert cells.line_name(FILE, 3) == "In [9]:3"


@pytest.mark.parametrize("number", [0, None, "x"])
def test_a_cell_without_a_number_has_its_file(monkeypatch: pytest.MonkeyPatch, number: Any) -> None:
    shell(monkeypatch, {FILE: number})
    assert cells.line_name(FILE, 3) == f"{FILE}:3"


@pytest.mark.parametrize("has", [{}, {"get_ipython": lambda: None}])
def test_an_ipython_without_a_shell_changes_nothing(monkeypatch: pytest.MonkeyPatch, has: dict[str, Any]) -> None:
    module = ModuleType("IPython")
    vars(module).update(has)
    monkeypatch.setitem(sys.modules, "IPython", module)
    assert cells.line_name(FILE, 3) == f"{FILE}:3"


def test_a_text_of_another_process_names_the_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "rank 2 failed, at 2071649295.py:3 in job; rank 1 at train.py:3 in job, <ipython-input-9-ab>:12 in work"
    assert cells.name_cells(text) == text
    terminal = "<ipython-input-9-ab>"
    shell(monkeypatch, {FILE: 8, terminal: 9})
    for file in (FILE, terminal, "/home/train.py"):
        monkeypatch.setitem(linecache.cache, file, (0, None, [], file))
    assert cells.name_cells(text) == (
        "rank 2 failed, at In [8]:3 in job; rank 1 at train.py:3 in job, In [9]:12 in work"
    )


class Holder:
    """A class that devshim does not know."""

    def __init__(self, x: Any) -> None:
        self.x = x


def test_ledger_and_warnings_name_the_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    shell(monkeypatch, {FILE: 8})
    ds.simulate(2)
    source = "\n\nwith ds.transfers() as log:\n    y = ds.copy(x, 'gpu:1')\nds.place([y, made], 'cpu')"
    names = {"ds": ds, "x": ds.ones(2), "made": Holder(ds.ones(2)), "__name__": "__main__"}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        exec(compile(source, FILE, "exec"), names)
    (record,) = names["log"].records  # type: ignore[attr-defined]
    assert record.site == "In [8]:4"
    assert "In [8]:4" in repr(names["log"])
    (warning,) = caught
    assert str(warning.message).startswith("ds.place at In [8]:5 did not move")
    assert warning.filename == FILE, "Python finds the line's source there"
