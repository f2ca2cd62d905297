"""Additions to click: groups that print devshim's errors, and commands whose last arguments are a program's."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from devshim.errors import DevshimError

__all__ = ["BACKEND", "PATH", "Group", "ProgramCommand"]

INTERRUPTED = 130
"""The exit code of shells for a program that Ctrl-C ended."""

PATH = click.Path(path_type=Path)
"""The type of an argument that names a file or a folder."""


class Group(click.Group):
    """Commands whose results are exit codes, and whose errors of devshim are printed as text."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command, and end with its exit code."""
        try:
            code = super().invoke(ctx)
        except DevshimError as error:
            from devshim.cli._console import print_error

            print_error(error)
            code = 1
        except KeyboardInterrupt:
            print("Interrupted", file=sys.stderr)
            code = INTERRUPTED
        ctx.exit(code or 0)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands in the order of their definition, each with the whole first sentence of its help."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, each.get_short_help_str(1000)) for name, each in self.commands.items()])


class ProgramCommand(click.Command):
    """A command whose last arguments are a program's, which starts with a file, ``-m`` or ``-c``, as with Python.

    Everything from there on belongs to the program, even options with the name of an option of the command. The
    function gets it as ``program``.
    """

    def begin(self, words: list[str]) -> int:
        """Return the index at which the program begins."""
        options = [each for each in self.params if isinstance(each, click.Option) and not each.is_flag]
        with_value = {name for each in options for name in each.opts}
        at = 0
        while at < len(words) and words[at].startswith("-") and words[at] != "-":
            if words[at].startswith(("-m", "-c")):
                break
            at += 2 if words[at] in with_value else 1
        return min(at, len(words))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments before the program."""
        at = self.begin(args)
        program = args[at:]
        super().parse_args(ctx, args[:at])
        if not program and not ctx.resilient_parsing:
            msg = f"give a program: {ctx.command_path} [OPTIONS] script.py"
            raise click.UsageError(msg, ctx)
        ctx.params["program"] = program
        return program

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Show the program in the usage line."""
        return [*super().collect_usage_pieces(ctx), "SCRIPT | -m MODULE | -c CODE", "[ARGS]..."]

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete options and files."""
        return super().shell_complete(ctx, incomplete) or [CompletionItem(incomplete, type="file")]


def _backends(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    from devshim.registry import discovery

    return [name for name in discovery.BUILTIN if name.startswith(incomplete)]


BACKEND = click.option(
    *("--backend", "-b"),
    metavar="NAME",
    help="torch, tensorflow, mxnet, paddle, jax, cupy, numpy, or a nickname: tf.",
    shell_complete=_backends,
)
"""The option that chooses a framework."""
