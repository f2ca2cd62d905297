"""The example test file of the page about tests runs as it is printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

pytest_plugins = ["pytester"]


def test_the_example_runs(project: Any) -> None:
    pages = [folder / "docs" / "guides" / "testing.md" for folder in Path(__file__).parents]
    (page,) = [each for each in pages if each.is_file()]
    (example,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
    done = project(example, "--devshim-backends=numpy", "-v")
    done.assert_outcomes(passed=7)
