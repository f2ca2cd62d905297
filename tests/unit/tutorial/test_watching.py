"""Tests of building pages again when their files change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from devshim.cli._watching import watch
from devshim.errors import DevshimError


def watched(pages: Sequence[Path], build: Callable[[Path], bool], *steps: Callable[[], object]) -> int:
    """Watch pages; each pause does the next step, and the last one is Ctrl-C."""
    left = iter(steps)

    def pause(seconds: float) -> None:
        assert 0 < seconds < 1
        step = next(left, None)
        if step is None:
            raise KeyboardInterrupt
        step()

    return watch(pages, build, pause)


@pytest.fixture
def pages(tmp_path: Path) -> list[Path]:
    found = [tmp_path / "a.md", tmp_path / "b.md"]
    for path in found:
        path.write_text("first")
    return found


def test_only_a_changed_page_is_built_again(pages: list[Path]) -> None:
    first, second = pages
    built: list[str] = []

    def build(path: Path) -> bool:
        built.append(f"{path.name} {path.read_text()}")
        return True

    def nothing() -> None:
        assert len(built) == 2

    assert watched(pages, build, nothing, nothing, lambda: second.write_text("second one"), lambda: None) == 0
    assert built == ["a.md first", "b.md first", "b.md second one"]
    assert first.read_text() == "first"


def test_a_change_during_a_build_counts(pages: list[Path]) -> None:
    built: list[str] = []

    def build(path: Path) -> bool:
        built.append(path.read_text())
        if len(built) == 1:
            path.write_text("changed in the meantime")
        return True

    assert watched(pages[:1], build, lambda: None) == 0
    assert built == ["first", "changed in the meantime"]


def test_an_error_or_an_absent_file_does_not_end_the_watch(
    pages: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    built: list[str] = []

    def build(path: Path) -> bool:
        built.append(path.read_text())
        if built == ["first"]:
            msg = "the front matter is wrong"
            raise DevshimError(msg, "write it so")
        return True

    steps = (pages[0].unlink, lambda: pages[0].write_text("again and right"))
    assert watched(pages[:1], build, *steps) == 0
    assert built == ["first", "again and right"]
    assert "the front matter is wrong" in capsys.readouterr().err


def test_a_page_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DevshimError, match=r"gone\.md is not a file"):
        watched([tmp_path / "gone.md"], lambda path: True)
