"""The reproducers in ``docs/ports.md`` fail at the line that the page marks, so the bugs still exist."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/ports.md"
BLOCKS = re.findall(r"^```py\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
USED = re.compile(r'ds\.use\("(\w+)"\)')
MARK = "  # fails: "


def here() -> list[str]:
    """Return the reproducers of the frameworks that are installed."""
    return [code for code in BLOCKS if importlib.util.find_spec(USED.findall(code)[0])]


def test_every_reproducer_has_at_most_ten_lines_and_one_that_fails() -> None:
    assert BLOCKS
    for code in BLOCKS:
        lines = [line for line in code.splitlines() if line]
        assert len(lines) <= 10
        assert sum(MARK in line for line in lines) == 1


@pytest.mark.parametrize("code", here())
def test_a_reproducer_fails_where_the_page_says(code: str, tmp_path: Path) -> None:
    """If this fails, a project has fixed the bug: remove the reproducer."""
    (number,) = [number for number, line in enumerate(code.splitlines(), 1) if MARK in line]
    script = tmp_path / "reproducer.py"
    script.write_text(code, encoding="utf-8")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert f'reproducer.py", line {number}, in <module>' in done.stderr
