"""The runner of a page: its blocks of Python, pasted in order, as printed, into a new process, as a reader does.

A page says on which frameworks it runs, visibly for the reader: ``ds.use("numpy")  # or "torch", "jax"``. On a
framework other than the first, its name replaces the first, as the comment says; nothing else is added or changed.

What a block prints is on the page: a block of ``text`` below it, after ``<!-- output -->``, or after ``<!-- output of
jax -->`` where it is true on one framework. It is compared with what the block prints; ``...`` is any text. A block
that prints and has no output is an error, except in README.md.

    python tests/pages/page.py docs/guides/transfers.md jax        # the whole page
    python tests/pages/page.py README.md jax 3                     # only its third block
    python tests/pages/page.py --write docs/guides/transfers.md jax  # writes the outputs of jax into the page
"""

from __future__ import annotations

import contextlib
import io
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
OUTPUT = re.compile(r"^<!-- output(?: of (?P<of>\w+))? -->\n+```text\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
TESTS = "a file of tests"
"""The marker before a block that pytest runs."""


class Block(NamedTuple):
    """A block of Python on a page."""

    code: str
    line: int
    """The line in which it starts."""
    is_tests: bool
    outputs: dict[str | None, str]
    """Framework -> what the page shows as the output; None for every framework."""


def blocks(text: str) -> list[Block]:
    """Return the blocks of Python of a page."""
    found = list(FENCE.finditer(text))
    ends = [*(at.start() for at in found), len(text)][1:]
    return [
        Block(at["code"], text.count("\n", 0, at.start("code")) + 1, at["kind"] == TESTS, _outputs(text, at.end(), end))
        for at, end in zip(found, ends, strict=True)
    ]


def _outputs(text: str, start: int, end: int) -> dict[str | None, str]:
    return {at["of"]: at["text"] for at in OUTPUT.finditer(text[:end], start)}


def frameworks(code: str) -> list[str]:
    """Return the frameworks that the code names, the selected one first; empty if it selects none."""
    if any(block.is_tests for block in blocks(code)):
        return list(ALL)
    chosen = USE.search(code)
    return [] if chosen is None else [chosen[1], *re.findall(r'"(\w+)"', chosen[2] or "")]


class OutputError(Exception):
    """The error when a block prints something other than the page shows."""


def run(path: Path, backend: str, only: int | None = None, *, write: bool = False) -> None:
    """Run a page's blocks, or one of them, in an empty folder; compare or write what they print."""
    text = path.read_text(encoding="utf-8")
    namespace: dict[str, Any] = {"__name__": "__main__"}
    printed = []
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for number, block in enumerate(blocks(text), 1):
            if only not in (None, number):
                continue
            if block.is_tests:
                printed.append("")
                _run_tests(block.code, backend)
                continue
            code = USE.sub(lambda chosen: chosen[0].replace(f'"{chosen[1]}"', f'"{backend}"', 1), block.code)
            source = "\n" * (block.line - 1) + code  # at its own lines, which tracebacks and compilers look up
            copied = Tee(sys.stdout)
            with contextlib.redirect_stdout(copied):
                exec(compile(source, str(path), "exec"), namespace)
            printed.append(copied.getvalue())
            if not write and path.name != "README.md":
                compare(block, printed[-1], backend)
        os.chdir("/")
    if write:
        path.write_text(with_outputs(text, [_varying(each, path) for each in printed], backend), encoding="utf-8")


class Tee(io.StringIO):
    """A text stream that also passes on its text."""

    def __init__(self, beside: io.TextIOBase | Any) -> None:
        super().__init__()
        self._beside = beside

    def write(self, text: str) -> int:
        self._beside.write(text)
        return super().write(text)


def compare(block: Block, printed: str, backend: str) -> None:
    """Raise `OutputError` if a block prints something other than the page shows; ``...`` on the page is any text."""
    if not block.outputs:
        if printed.strip():
            msg = f"the block at line {block.line} prints, and the page does not show it:\n{printed}"
            raise OutputError(msg)
        return
    shown = block.outputs.get(backend, block.outputs.get(None))
    if shown is None:
        return  # the page shows other frameworks
    pattern = ".*?".join(re.escape(part) for part in _plain(shown).split("..."))
    if not re.fullmatch(pattern, _plain(printed), re.DOTALL):
        msg = f"the block at line {block.line} prints\n{printed}and the page shows\n{shown}"
        raise OutputError(msg)


def _varying(text: str, path: Path) -> str:
    """Return a text with ``...`` for the lines of this page and for temporary folders, which change."""
    return re.sub(rf"{re.escape(str(path))}:\d+|{re.escape(tempfile.gettempdir())}/[\w.-]+", "...", text)


def _plain(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def with_outputs(text: str, printed: list[str], backend: str) -> str:
    """Return a page with new outputs in the places for this framework, or for all; a block without one gets one."""
    parts, position = [], 0
    found = list(FENCE.finditer(text))
    ends = [*(at.start() for at in found), len(text)][1:]
    for at, end, new in zip(found, ends, printed, strict=True):
        shown = [each for each in OUTPUT.finditer(text[:end], at.end()) if each["of"] in (None, backend)]
        body = _plain(new) + "\n"
        if shown:
            parts += [text[position : shown[0].start("text")], body]
            position = shown[0].end("text")
        elif new.strip() and not any(True for _ in OUTPUT.finditer(text[:end], at.end())):
            parts += [text[position : at.end()], f"\n\n<!-- output -->\n```text\n{body}```"]
            position = at.end()
    return "".join([*parts, text[position:]])


def _run_tests(code: str, backend: str) -> None:
    """Run a test file, which needs only pytest and devshim."""
    Path("test_page.py").write_text(code, encoding="utf-8")
    subprocess.run([sys.executable, "-m", "pytest", "-q", f"--devshim-backends={backend}"], check=True)


if __name__ == "__main__":
    words = [each for each in sys.argv[1:] if each != "--write"]
    page, name, *number = words
    sys.path.pop(0)  # this folder
    run(Path(page).resolve(), name, int(number[0]) if number else None, write=words != sys.argv[1:])
