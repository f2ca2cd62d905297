"""The mutation run itself: what it changes, what it leaves alone, and which tests judge a line."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import mutate
from report import page

SOURCE = '''"""A module."""
TYPE_CHECKING = False
if TYPE_CHECKING:
    N = 1


def f(x: int = 2, y: "Literal[3]" = None) -> bool:
    if not x and (y is None or x <= 4):
        return x == 1
    return None
'''


@pytest.fixture
def found(tmp_path):
    (tmp_path / "module.py").write_text(SOURCE)
    return mutate.mutants(tmp_path, "module.py")


def test_each_operator_is_changed_once(found):
    assert sorted((each.line, each.change) for each in found) == [
        (7, "2 -> 3"),
        (8, "4 -> 5"),
        (8, "<= -> <"),
        (8, "and -> or"),
        (8, "is -> is not"),
        (8, "not removed"),
        (8, "or -> and"),
        (9, "1 -> 2"),
        (9, "== -> !="),
        (9, "return None"),
    ]


def test_every_mutant_is_another_program_that_can_be_read(found):
    texts = {each.source(SOURCE.encode()) for each in found}
    assert len(texts) == len(found)
    trees = {ast.dump(ast.parse(text)) for text in texts}
    assert len(trees) == len(found)
    assert ast.dump(ast.parse(SOURCE)) not in trees


def test_columns_are_counted_in_bytes(tmp_path):
    (tmp_path / "module.py").write_text("x = 'é' == 'ü' and 'ö' != 1\n", encoding="utf-8")
    source = (tmp_path / "module.py").read_bytes()
    changed = {each.source(source).decode() for each in mutate.mutants(tmp_path, "module.py")}
    assert "x = 'é' != 'ü' and 'ö' != 1\n" in changed
    assert "x = 'é' == 'ü' or 'ö' != 1\n" in changed
    assert "x = 'é' == 'ü' and 'ö' != 2\n" in changed


def test_the_page_counts_and_names_survivors():
    dead = {"path": "a.py", "line": 1, "change": "1 -> 2", "text": "x = 1", "fate": "killed", "reason": ""}
    alive = {**dead, "line": 2, "text": "y = 1 | 2", "fate": "survived"}
    text = page({"seed": 5, "results": [dead, dead, dead, alive]})
    assert "3 of 4 faults were killed (75.0 %)" in text
    assert "| `a.py` | 3 | 1 |" in text
    assert "| `a.py:2` | 1 -> 2 | `y = 1 \\| 2` | not looked into |" in text
