"""Tests of the folder in which a page runs."""

from __future__ import annotations

from pathlib import Path

from devshim.tutorial import kernel_environment


def test_the_files_beside_a_page_can_be_read_and_new_ones_stay_apart(tmp_path: Path) -> None:
    pages = tmp_path / "pages"
    (pages / "data").mkdir(parents=True)
    (pages / "data" / "numbers.csv").write_text("1,2")
    (pages / "helper.py").write_text("x = 1")
    (pages / "page.md").write_text("# Page")
    own = tmp_path / "torch"
    own.mkdir()
    folder = kernel_environment.working_folder(pages / "page.md", own)
    assert (folder / "data" / "numbers.csv").read_text() == "1,2"
    assert (folder / "helper.py").read_text() == "x = 1"
    (folder / "new.txt").write_text("new")
    assert sorted(each.name for each in pages.iterdir()) == ["data", "helper.py", "page.md"]
