"""The page of the command line: the help of every command, as it prints it.

python tests/pages/command_line.py --write docs/reference/command-line.md
python tests/pages/command_line.py --check docs/reference/command-line.md    # exit code 1 if it differs
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import click

HEAD = """# The command line

`devshim` is one program, and `python -m devshim` is the same. An error of devshim is printed as its
message and its hint, with exit code 1; wrong usage has exit code 2.

Generated from the help of each command by `python tests/pages/command_line.py`; do not edit it.
"""


def page() -> str:
    """Return the page as Markdown."""
    os.environ.update(COLUMNS="90")
    from devshim.cli.app import app

    root = click.Context(app, info_name="devshim", **app.context_settings)
    return HEAD + "".join(part for each in contexts(root) for part in _section(each))


def contexts(context: click.Context) -> Iterator[click.Context]:
    """Yield the context of a command, and those of the commands below it, in the order of the help."""
    yield context
    for word, each in getattr(context.command, "commands", {}).items():
        yield from contexts(click.Context(each, context, word))


def _section(context: click.Context) -> Iterator[str]:
    yield f"\n## {context.command_path}\n\n```text\n{context.get_help().strip()}\n```\n"


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
