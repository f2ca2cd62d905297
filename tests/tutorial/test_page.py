"""Tests of reading a page: formats, lines, slots and the errors of a wrong front matter."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from devshim.errors import DevshimError
from devshim.tutorial.page import Cell, Page, Slot, Text, parse, read

MYST = """---
title: Devices
author: someone
devshim:
  frameworks: [pytorch, jax, numpy]
  gpus: 3
---

# A heading

Text with a block that is not a cell:

```python
x = 1
```

```{code-cell} python
:tags: [differs]

x = 1
y = 2
```

Text between.

```{code-cell}
---
frameworks: torch
---
import torch
```

```{code-cell}
:frameworks: jax, numpy

z = 1
```

```{code-cell}
:tags: [raises-exception]

x / 0
```
"""

PERCENT = """# ---
# devshim:
#   frameworks: [torch, jax]
# ---

# %% [markdown]
# # A heading
#
# Text.

# %% tags=["differs"]
x = 1
%time x

# %% frameworks="torch"
x = 1
"""


def page_of(text: str, name: str = "page.md") -> Page:
    return parse(Path(name), text)


def myst(front: str, cell: str = "x = 1", options: str = "") -> str:
    return f"---\n{front}\n---\n\n# Title\n\n```{{code-cell}}\n{options}\n{cell}\n```\n"


def test_the_front_matter_is_read() -> None:
    page = page_of(MYST)
    assert (page.title, page.frameworks, page.gpus) == ("Devices", ("torch", "jax", "numpy"), 3)
    assert page.metadata == {"author": "someone"}


def test_parts_have_their_lines() -> None:
    page = page_of(MYST)
    lines = MYST.splitlines()
    assert len(page.cells) == 4
    for part in page.parts:
        assert part.line is not None
        assert lines[part.line - 1] == part.source.splitlines()[0]
    assert page.where(page.cells[0]) == f"page.md:{lines.index('y = 2')}"
    assert [cell.number for cell in page.cells] == [1, 2, 3, 4]


def test_tags_and_frameworks_are_read() -> None:
    first, second, third, last = page_of(MYST).cells
    assert (first.frameworks, first.may_differ, first.may_raise) == (None, True, False)
    assert (second.frameworks, third.frameworks) == (("torch",), ("jax", "numpy"))
    assert (last.may_differ, last.may_raise) == (False, True)


def test_neighbours_of_disjoint_frameworks_are_one_slot() -> None:
    slots = list(page_of(MYST).slots())
    assert [type(each) for each in slots] == [Text, Slot, Text, Slot, Slot]
    both = slots[3]
    assert isinstance(both, Slot)
    assert not both.is_neutral
    found = [both.cell_for(name) for name in ("torch", "jax", "numpy", "paddle")]
    assert [each.source if each else None for each in found] == ["import torch", "z = 1", "z = 1", None]


def test_cells_of_one_framework_are_separate_slots() -> None:
    one = "```{code-cell}\n:frameworks: torch\n\nx\n```\n"
    page = page_of("---\ndevshim: {frameworks: [torch, jax]}\n---\n" + one + one)
    assert [len(each.cells) for each in page.slots() if isinstance(each, Slot)] == [1, 1]


def test_a_framework_runs_its_own_cells_and_the_neutral_ones() -> None:
    page = page_of(MYST)
    assert [cell.number for cell in page.cells_of("torch")] == [1, 2, 4]
    assert [cell.number for cell in page.cells_of("numpy")] == [1, 3, 4]


def test_a_percent_script_is_read() -> None:
    page = page_of(PERCENT, "page.py")
    assert (page.title, page.frameworks, page.gpus) == ("A heading", ("torch", "jax"), 2)
    first, second = page.cells
    assert (first.source, first.line, first.may_differ) == ("x = 1\n%time x", 12, True)
    assert (second.frameworks, second.line) == (("torch",), 16)
    assert page.parts[0] == Text("# A heading\n\nText.", 7)


def test_a_notebook_is_read() -> None:
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": "# A heading"},
        {"cell_type": "code", "metadata": {}, "source": "", "outputs": [], "execution_count": None},
        {"cell_type": "code", "metadata": {"tags": ["differs"]}, "source": "x", "outputs": [], "execution_count": None},
    ]
    metadata = {"devshim": {"frameworks": ["torch"], "gpus": 0}}
    text = json.dumps({"nbformat": 4, "nbformat_minor": 4, "metadata": metadata, "cells": cells})
    page = page_of(text, "page.ipynb")
    (cell,) = page.cells
    assert (page.title, page.gpus, cell.line, cell.tags) == ("A heading", 0, None, ("differs",))
    assert page.where(cell) == "page.ipynb, cell 2"


def test_a_cell_keeps_its_id_when_others_change() -> None:
    before, after = page_of(MYST), page_of(MYST.replace("x = 1\ny = 2", "x = 5"))
    assert [cell.id for cell in before.cells][1:] == [cell.id for cell in after.cells][1:]
    assert before.cells[0].id != after.cells[0].id
    twice = page_of(MYST.replace("z = 1", "x / 0").replace(":frameworks: jax, numpy", ""))
    assert len({cell.id for cell in twice.cells}) == 4


def test_the_digest_is_of_a_frameworks_own_code() -> None:
    before, after = page_of(MYST), page_of(MYST.replace("import torch", "import torch as t"))
    assert before.digest("torch") != after.digest("torch")
    assert before.digest("jax") == after.digest("jax") != before.digest("numpy")
    for change in (("gpus: 3", "gpus: 2"), ("[raises-exception]", "[raises-exception, differs]")):
        assert page_of(MYST.replace(*change)).digest("jax") != before.digest("jax")
    assert page_of(MYST.replace("Text between", "Other text")).digest("jax") == before.digest("jax")


@pytest.mark.parametrize(
    ("text", "problem", "hint"),
    [
        ("# Title\n", "page.md:1: the front matter has no devshim entry", "frameworks: [torch"),
        (myst("devshim: torch"), "page.md:2: devshim must be a mapping, not 'torch'", "frameworks"),
        (myst("devshim:\n  gpus: 2"), "page.md: frameworks is missing", "frameworks: [torch"),
        (myst("devshim:\n  frameworks: [torch]\n  gpu: 2"), "page.md:4: devshim has no entry 'gpu'", "gpus?"),
        (myst("devshim:\n  frameworks: [torch]\n  gpus: two"), "page.md:4: gpus must be a number from 0", "gpus: 2"),
        (
            myst("devshim: {frameworks: [torch]}", options=":tag: [differs]"),
            "the option 'tag' has no meaning here",
            "did you mean tags",
        ),
        (
            myst("devshim: {frameworks: [torch]}", options=":frameworkes: torch"),
            "the option 'frameworkes' has no",
            "did you mean frameworks",
        ),
        (myst("devshim:\n  frameworks: [torhc]"), "page.md:3: no backend is called 'torhc'", "did you mean 'torch'"),
        (myst("devshim:\n  frameworks: [tf, tensorflow]"), "page.md:3: frameworks names tensorflow twice", "remove"),
        (myst("devshim: {frameworks: [torch]}", options=":tags: [differ]\n"), "the tag 'differ' has no", "differs?"),
        (
            myst("devshim: {frameworks: [torch]}", options=":frameworks: jax\n"),
            "page.md:10: the cell is for jax, which is not among the page's frameworks",
            "add jax to frameworks",
        ),
        ("---\ndevshim: {frameworks: [torch\n---\n\ntext", "cannot be parsed", None),
        ("---\ndevshim: {frameworks: [torch]}\n---\n\n# Text", "the page has no code cells", "{code-cell}"),
    ],
)
def test_an_error_names_the_line_and_what_to_do(text: str, problem: str, hint: str | None) -> None:
    with pytest.raises(DevshimError) as caught:
        page_of(text)
    assert problem in caught.value.problem
    assert caught.value.problem.startswith("page.md")
    if hint is not None:
        assert hint in str(caught.value.hint)


def test_a_missing_file_and_an_unknown_format_are_errors(tmp_path: Path) -> None:
    with pytest.raises(DevshimError, match="cannot be read: No such file") as caught:
        read(tmp_path / "none.md")
    assert caught.value.hint == f"devshim tutorial new {tmp_path / 'none.md'}"
    (tmp_path / "page.rst").write_text("x", encoding="utf-8")
    with pytest.raises(DevshimError, match=r"page.rst: .rst is not a format of pages"):
        read(tmp_path / "page.rst")


def test_an_empty_page_says_how_to_write_one() -> None:
    with pytest.raises(DevshimError, match=r"page.md: the page is empty") as caught:
        page_of(" \n")
    assert "devshim tutorial new page.md" in str(caught.value.hint)


def test_a_page_of_a_windows_editor_is_read(tmp_path: Path) -> None:
    """It has a byte order mark, and Windows newlines."""
    path = tmp_path / "page.md"
    path.write_bytes(b"\xef\xbb\xbf" + MYST.replace("\n", "\r\n").encode())
    found = read(path)
    assert found.frameworks == ("torch", "jax", "numpy")
    assert [(cell.source, cell.line) for cell in found.cells] == [
        (each.source, each.line) for each in page_of(MYST).cells
    ]


def test_another_encoding_is_an_error_that_names_the_right_one(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_bytes(MYST.encode("utf-16"))
    with pytest.raises(DevshimError, match=r"page.md: the page is not UTF-8 text") as caught:
        read(path)
    assert caught.value.hint == "save the file with the encoding UTF-8"


def test_a_page_without_frameworks_in_cells_has_only_neutral_slots() -> None:
    page = page_of(myst("devshim: {frameworks: [torch, jax]}"))
    assert [each.is_neutral for each in page.slots() if isinstance(each, Slot)] == [True]
    assert all(isinstance(cell, Cell) and cell.runs_on("jax") for cell in page.cells)
