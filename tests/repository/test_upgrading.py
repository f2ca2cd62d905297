"""The page for upgrading a framework names tests that exist, and private names that are in the files it names."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/internals/upgrading.md"
ADAPTERS = ROOT / "backends/devshim_backends"
FOLDERS = {"PyTorch": "_torch", "PaddlePaddle": "_paddle", "Keras": ""}
"""Framework -> the folder of its adapter, where the name differs."""
NAMED = re.compile(r"`(?:kit )?(?P<file>[\w/.]+)?::(?P<test>test_\w+)[^`]*`")


def named_tests(page: str) -> list[tuple[str, str]]:
    """Return the file and the name of each test in a page; a bare ``::test_x`` is in the file named before it."""
    found, file = [], ""
    rows = "\n".join(line for line in page.splitlines() if line.startswith("|"))
    for match in NAMED.finditer(rows):
        file = match["file"] or file
        found.append((Path(file).with_suffix(".py").name, match["test"]))
    return found


def rows(page: str) -> list[tuple[str, list[str], list[str]]]:
    """Return the framework, the private names and the files of each row of the tables of private names."""
    found: list[tuple[str, list[str], list[str]]] = []
    for section in re.split(r"^### ", page.partition("## The sessions")[0], flags=re.MULTILINE)[1:]:
        framework = section.partition("\n")[0].strip()
        for line in section.splitlines():
            names, *rest = line.strip("| ").split(" | ")
            if len(rest) == 3 and names != "name":
                found.append((framework, re.findall(r"`([^`]+)`", names), re.findall(r"`([^`]+)`", rest[0])))
    return found


def texts(framework: str, files: list[str]) -> list[str | None]:
    """Return the text of each file, or of all files of a folder, relative to an adapter; None if there is none."""
    folder = ADAPTERS / FOLDERS.get(framework, f"_{framework.lower()}")
    found: list[str | None] = []
    for name in files:
        path = next((each for each in (folder / name, ROOT / name) if each.exists()), None)
        parts = [] if path is None else [path] if path.is_file() else sorted(path.rglob("*.py"))
        found.append("\n".join(part.read_text(encoding="utf-8") for part in parts) or None)
    return found


def problems(page: str) -> list[str]:
    """Return the files of the tables that do not exist, and the private names that are not in their files."""
    found = []
    for framework, names, files in rows(page):
        contents = texts(framework, files)
        found += [f"{framework}: {name}" for name, text in zip(files, contents, strict=True) if text is None]
        whole = "\n".join(filter(None, contents))
        lasts = [re.split(r"[.:*]", name.strip("*"))[-1] for name in names]
        found += [f"{framework}: {last} in {files}" for last in lasts if files and last not in whole]
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


def test_every_private_name_is_in_the_files_that_the_page_names() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert len(rows(page)) > 150
    assert problems(page) == []


def test_a_private_name_that_is_not_in_its_file_is_noticed() -> None:
    row = "| `torch._C._len_torch_function_stack`, `torch._gone` | `scopes.py`, `moved.py` | why | `test_x.py` |"
    assert problems(f"### PyTorch\n\n{row}\n") == ["PyTorch: moved.py", "PyTorch: _gone in ['scopes.py', 'moved.py']"]
