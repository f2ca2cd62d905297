"""The page of the command line: the help of every command, as it prints it.

python tests/pages/command_line.py --write docs/reference/command-line.md
python tests/pages/command_line.py --check docs/reference/command-line.md    # exit code 1 if it differs
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from devshim.cli._commands import Command, Group

HEAD = """# The command line

`devshim` is one program, and `python -m devshim` is the same. An error of devshim is printed as its
message and its hint, with exit code 1; wrong usage has exit code 2.

Generated from the help of each command by `python tests/pages/command_line.py`; not to be edited.
"""


def page() -> str:
    """Return the page as Markdown."""
    os.environ.update(COLUMNS="90")
    from devshim.cli.app import app

    return HEAD + "".join(part for name, each in commands("devshim", app) for part in _section(name, each))


def commands(name: str, command: Command | Group) -> Iterator[tuple[str, Command | Group]]:
    """Yield a command with its name, and those of each command below it, in the order of the help."""
    yield name, command
    for word, each in getattr(command, "commands", {}).items():
        yield from commands(f"{name} {word}", each)


def _section(name: str, command: Command | Group) -> Iterator[str]:
    yield f"\n## {name}\n\n```text\n{command.help(name).strip()}\n```\n"


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
