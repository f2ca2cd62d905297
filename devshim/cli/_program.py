"""The parsing of `devshim run`: first its own options, then a program, whose arguments are not parsed.

As with Python itself, the program starts with a file, ``-m`` or ``-c``. Everything from there on belongs to the
program, even options with the same name as an option of devshim.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from typer.core import TyperCommand

__all__ = ["ProgramCommand", "begin"]

_WITH_VALUE = {"--gpus", "--memory", "--like", "--async-copies", "--backend", "-b"}


def begin(words: list[str], with_value: Container[str] = _WITH_VALUE) -> int:
    """Return the index at which the program begins.

    Args:
        words: The arguments of the command.
        with_value: Its options that are followed by a value.
    """
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        if words[at].startswith(("-m", "-c")):
            break
        at += 2 if words[at] in with_value else 1
    return min(at, len(words))


class ProgramCommand(TyperCommand):
    """A command whose last arguments are a program's: they are in the context's ``args``."""

    with_value: Container[str] = _WITH_VALUE

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments before the program."""
        at = begin(args, self.with_value)
        super().parse_args(ctx, args[:at])
        ctx.args = args[at:]
        return list(ctx.args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Show the program in the usage line."""
        return [*super().collect_usage_pieces(ctx), "SCRIPT | -m MODULE | -c CODE", "[ARGS]..."]
