"""The page for upgrading a framework names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/internals/upgrading.md"
NAMED = re.compile(r"`(?:kit )?(?P<file>[\w/.]+)?::(?P<test>test_\w+)[^`]*`")


def named_tests(page: str) -> list[tuple[str, str]]:
    """Return the file and the name of each test in a page; a bare ``::test_x`` is in the file named before it."""
    found, file = [], ""
    rows = "\n".join(line for line in page.splitlines() if line.startswith("|"))
    for match in NAMED.finditer(rows):
        file = match["file"] or file
        found.append((Path(file).with_suffix(".py").name, match["test"]))
    return found


def existing_tests() -> set[tuple[str, str]]:
    """Return the file and the name of each test function of the project."""
    files = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "devshim/testing").rglob("*.py")]
    return {
        (path.name, name)
        for path in files
        for name in re.findall(r"^ *def (test_\w+)\(", path.read_text(encoding="utf-8"), re.MULTILINE)
    }


def test_every_test_that_the_page_names_exists() -> None:
    named = named_tests(PAGE.read_text(encoding="utf-8"))
    assert len(named) > 100
    assert sorted(set(named) - existing_tests()) == []


def test_a_test_that_does_not_exist_is_noticed() -> None:
    named = named_tests("| `x` | `test_upgrading.py::test_gone`, `::test_a_test_that_does_not_exist_is_noticed` |")
    assert set(named) - existing_tests() == {("test_upgrading.py", "test_gone")}
