"""The diagrams of the page for maintainers show what its tables say."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "docs/internals"
DRAWINGS = runpy.run_path(str(FOLDER / "diagrams.py"))["DRAWINGS"]


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_diagram_is_drawn_from_its_table(name: str) -> None:
    page = (FOLDER / "index.md").read_text(encoding="utf-8")
    assert f"]({name})" in page
    drawn = (FOLDER / name).read_text(encoding="utf-8")
    assert drawn == DRAWINGS[name](page), "run `python docs/internals/diagrams.py`"
    assert drawn != DRAWINGS[name](page.replace("`errors`", "`mistakes`").replace("find the", "look for the"))
