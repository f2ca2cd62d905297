"""The page of the command line: the help of every command, as Typer prints it.

python tests/pages/command_line.py --write docs/reference/command-line.md
python tests/pages/command_line.py --check docs/reference/command-line.md    # exit code 1 if it differs
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from typer.testing import CliRunner

HEAD = """# The command line

`devshim` is one program, and `python -m devshim` is the same. An error of devshim is printed as its
message and its hint, with exit code 1; wrong usage has exit code 2.

Generated from the help of each command by `python tests/pages/command_line.py`; not to be edited.
"""


def page() -> str:
    """Return the page as Markdown."""
    os.environ.update(COLUMNS="88", TERMINAL_WIDTH="88")
    from devshim.cli.app import app

    root = typer.main.get_command(app)
    return HEAD + "".join(part for words in commands(root, ()) for part in _section(app, words))


def commands(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the words of a command, and those of each command below it, in the order of the help."""
    yield words
    for name, each in getattr(command, "commands", {}).items():
        if not each.hidden:
            yield from commands(each, (*words, name))


def _section(app: Any, words: tuple[str, ...]) -> Iterator[str]:
    done = CliRunner().invoke(app, [*words, "--help"], prog_name="devshim")
    if done.exit_code:
        raise SystemExit(done.output)
    name = " ".join(("devshim", *words))
    yield f"\n## {name}\n\n```text\n{done.output.strip()}\n```\n"


def main(arguments: list[str]) -> int:
    """Write or check the page, and return the exit code."""
    option, name = arguments
    path, text = Path(name), page()
    if option == "--write":
        path.write_text(text, encoding="utf-8")
        return 0
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return 0
    print(f"{path} differs from the help: python tests/pages/command_line.py --write {path}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
