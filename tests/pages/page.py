"""The runner of a page: its blocks of Python, pasted in order, as printed, into a new process, as a reader does.

A page says on which frameworks it runs, visibly for the reader: ``ds.use("numpy")  # or "torch", "jax"``. On a
framework other than the first, its name replaces the first, as the comment says; nothing else is added or changed.

    python tests/pages/page.py docs/guides/transfers.md jax        # the whole page
    python tests/pages/page.py README.md jax 3              # its third block alone
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

USE = re.compile(r'^ds\.use\("(\w+)"\)(?:  # or (.*))?$', re.MULTILINE)
FENCE = re.compile(r"^(<!-- (?P<kind>[a-z ]+) -->\n+)?```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
ALL = ("numpy", "torch", "tensorflow", "mxnet", "paddle", "jax")
TESTS = "a file of tests"
"""The marker before a block that pytest runs."""


class Block(NamedTuple):
    """A block of Python on a page."""

    code: str
    line: int
    """The line in which it starts."""
    is_tests: bool


def blocks(text: str) -> list[Block]:
    """Return the blocks of Python of a page."""
    found = FENCE.finditer(text)
    return [Block(at["code"], text.count("\n", 0, at.start("code")) + 1, at["kind"] == TESTS) for at in found]


def frameworks(code: str) -> list[str]:
    """Return the frameworks that the code names, the selected one first; empty if it selects none."""
    if any(block.is_tests for block in blocks(code)):
        return list(ALL)
    chosen = USE.search(code)
    return [] if chosen is None else [chosen[1], *re.findall(r'"(\w+)"', chosen[2] or "")]


def run(path: Path, backend: str, only: int | None = None) -> None:
    """Run a page's blocks, or one of them, in an empty folder."""
    text = path.read_text(encoding="utf-8")
    namespace: dict[str, Any] = {"__name__": "__main__"}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for number, block in enumerate(blocks(text), 1):
            if only not in (None, number):
                continue
            if block.is_tests:
                _run_tests(block.code, backend)
                continue
            code = USE.sub(lambda chosen: chosen[0].replace(f'"{chosen[1]}"', f'"{backend}"', 1), block.code)
            source = "\n" * (block.line - 1) + code  # at its own lines, which tracebacks and compilers look up
            exec(compile(source, str(path), "exec"), namespace)
        os.chdir("/")


def _run_tests(code: str, backend: str) -> None:
    """Run a test file, which needs only pytest and devshim."""
    Path("test_page.py").write_text(code, encoding="utf-8")
    subprocess.run([sys.executable, "-m", "pytest", "-q", f"--devshim-backends={backend}"], check=True)


if __name__ == "__main__":
    page, name, *number = sys.argv[1:]
    sys.path.pop(0)  # this folder
    run(Path(page).resolve(), name, int(number[0]) if number else None)
