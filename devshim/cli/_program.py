"""How `devshim run` reads its words: its own options first, then a program, whose words are not looked at.

As with Python itself the program begins with a file, ``-m`` or ``-c``, and everything from there on is the program's,
options of the same name as devshim's included.
"""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

__all__ = ["ProgramCommand", "begin"]

_WITH_VALUE = {"--gpus", "--memory", "--backend", "-b"}


def begin(words: list[str]) -> int:
    """Return where the program begins."""
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        if words[at].startswith(("-m", "-c")):
            break
        at += 2 if words[at] in _WITH_VALUE else 1
    return min(at, len(words))


class ProgramCommand(TyperCommand):
    """A command whose words end in a program's: they are in the context's ``args``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words before the program."""
        at = begin(args)
        super().parse_args(ctx, args[:at])
        ctx.args = args[at:]
        return list(ctx.args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Show the program in the line of usage."""
        return [*super().collect_usage_pieces(ctx), "SCRIPT | -m MODULE | -c CODE", "[ARGS]..."]
