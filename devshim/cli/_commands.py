"""Commands, their options and their help, on argparse.

Requirements of this module:

* It is imported in a few milliseconds, and only the command that runs builds its parser: typer, which imports pydantic
  when a command runs, took longer than all that `devshim devices` itself does.
* A command is a function with defaults. Its docstring is its help, and its result the exit code.
* Help is plain text: the same on a terminal and in a pipe.
"""

from __future__ import annotations

import inspect
import os
import shutil
import sys
import textwrap
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, HelpFormatter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from devshim.errors import DevshimError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Function = Callable[..., int | None]

__all__ = ["HELP", "Argument", "Command", "Group", "UsageError", "argument", "flag", "number"]

INTERRUPTED = 130
"""The exit code of shells for a program that Ctrl-C ended."""


class UsageError(Exception):
    """A command was called in a wrong way; its text is printed below the usage, with exit code 2."""


@dataclass(frozen=True)
class Argument:
    """An option or a positional argument.

    Attributes:
        names: ``("--backend", "-b")``, or the name of the function's parameter for a positional argument.
        settings: The further arguments of `argparse.ArgumentParser.add_argument`.
    """

    names: tuple[str, ...]
    settings: dict[str, Any]

    @property
    def is_option(self) -> bool:
        """True unless it is positional."""
        return self.names[0].startswith("-")

    @property
    def takes_value(self) -> bool:
        """True for an option that is followed by a value."""
        return (self.is_option and "action" not in self.settings) or self.settings.get("action") == "append"

    def usage(self) -> str:
        """Return a positional argument as the usage line shows it."""
        shown = str(self.settings["metavar"])
        return {"*": f"[{shown}]...", "+": f"{shown}..."}.get(self.settings.get("nargs", ""), shown)


def argument(*names: str, help: str = SUPPRESS, **settings: Any) -> Argument:
    """Return an option with a value, or a positional argument; without ``help`` it is not listed."""
    return Argument(names, {"help": help, **settings})


def flag(*names: str, help: str) -> Argument:
    """Return an option without a value."""
    return Argument(names, {"help": help, "action": "store_true"})


def number(kind: type, low: float | None = None, high: float | None = None) -> Callable[[str], Any]:
    """Return a function that parses a number in a range."""

    def parse(text: str) -> Any:
        try:
            found = kind(text)
        except ValueError:
            msg = f"{text!r} is not a {'whole ' if kind is int else ''}number"
            raise ArgumentTypeError(msg) from None
        if (low is not None and found < low) or (high is not None and found > high):
            msg = f"{text} is not {f'at least {low}' if high is None else f'from {low} to {high}'}"
            raise ArgumentTypeError(msg)
        return found

    return parse


HELP = flag("-h", "--help", help="Show this message and exit.")


@dataclass(frozen=True)
class Command:
    """A command.

    Attributes:
        function: What it calls, with the arguments that were given.
        arguments: Its options and positional arguments.
        program: True if its last arguments are a program's, which starts with a file, ``-m`` or ``-c``. The function
            gets them as ``program``.
    """

    function: Function
    arguments: tuple[Argument, ...]
    program: bool = False

    @property
    def text(self) -> str:
        """The help text."""
        return inspect.getdoc(self.function) or ""

    def run(self, name: str, words: list[str]) -> int:
        """Parse the arguments, call the function, and return the exit code."""
        parser = self.parser(name)
        at = self.begin(words) if self.program else len(words)
        given = vars(parser.parse_intermixed_args(words[:at]))
        if self.program:
            given["program"] = words[at:]
        try:
            return self.function(**given) or 0
        except UsageError as error:
            parser.error(str(error))

    def help(self, name: str) -> str:
        """Return the help: usage, text and options."""
        return self.parser(name).format_help()

    def begin(self, words: list[str]) -> int:
        """Return the index at which the program begins; options from there on are the program's."""
        with_value = {name for each in self.arguments if each.takes_value for name in each.names}
        at = 0
        while at < len(words) and words[at].startswith("-") and words[at] != "-":
            if words[at].startswith(("-m", "-c")):
                break
            at += 2 if words[at] in with_value else 1
        return min(at, len(words))

    def parser(self, name: str) -> ArgumentParser:
        """Return a parser; what is not given is not in its result, so that the function's defaults count."""
        pieces = [name, "[OPTIONS]", *(each.usage() for each in self.arguments if not each.is_option)]
        pieces += ["SCRIPT | -m MODULE | -c CODE", "[ARGS]..."] if self.program else []
        parser = ArgumentParser(
            prog=name,
            usage=" ".join(pieces),
            description=self.text,
            formatter_class=_Paragraphs,
            argument_default=SUPPRESS,
            allow_abbrev=False,
            add_help=False,
        )
        for each in self.arguments:
            parser.add_argument(*each.names, **each.settings)
        parser.add_argument(*HELP.names, action="help", help=HELP.settings["help"])
        return parser


class _Paragraphs(HelpFormatter):
    """Help whose description has paragraphs."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30, width=_width())

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n\n".join(textwrap.fill(part, width) for part in text.split("\n\n"))


def _width() -> int:
    return min(shutil.get_terminal_size().columns, 100) - 2


@dataclass
class Group:
    """Commands and groups of commands, by name.

    Attributes:
        text: The help text.
        version: The text that ``--version`` prints, if the group has that option.
        commands: What it contains.
    """

    text: str
    version: str = ""
    commands: dict[str, Command | Group] = field(default_factory=dict)

    def command(self, *arguments: Argument, name: str = "", program: bool = False) -> Callable[[Function], Function]:
        """Return a decorator that adds a function as a command."""

        def add(function: Function) -> Function:
            self.commands[name or function.__name__] = Command(function, arguments, program)
            return function

        return add

    def options(self) -> list[Argument]:
        """Return the options of the group itself."""
        return [*([flag("--version", help="Print the version and exit.")] if self.version else []), HELP]

    def main(self, words: list[str]) -> int:
        """Run a command as a program does: print devshim's own errors as text, and return the exit code."""
        try:
            code = self.run("devshim", words)
            sys.stdout.flush()
        except DevshimError as error:
            from devshim.cli._console import complain

            complain(error)
            return 1
        except KeyboardInterrupt:
            print("Interrupted", file=sys.stderr)
            return INTERRUPTED
        except BrokenPipeError:  # the reader, such as `head`, has ended
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes at its end
            return 1
        return code

    def run(self, name: str, words: list[str]) -> int:
        """Run the command that the first word names, and return the exit code."""
        first, rest = (words[0], words[1:]) if words else ("", [])
        if first in HELP.names or not words:
            print(self.help(name))
            return 0 if words else 2
        if first == "--version" and self.version:
            print(self.version)
            return 0
        if first not in self.commands:
            kind = "option" if first.startswith("-") else "command"
            print(f"usage: {name} [OPTIONS] COMMAND [ARGS]...\n{name}: no such {kind}: {first}", file=sys.stderr)
            print(_nearest(first, self.commands) + f"'{name} --help' lists the commands.", file=sys.stderr)
            return 2
        return self.commands[first].run(f"{name} {first}", rest)

    def help(self, name: str) -> str:
        """Return the help: the options, and the first sentence of each command's help."""
        options = [(", ".join(each.names), each.settings["help"]) for each in self.options()]
        commands = [(each, command.text.split("\n\n")[0]) for each, command in self.commands.items()]
        parts = [f"usage: {name} [OPTIONS] COMMAND [ARGS]...", textwrap.fill(self.text, _width())]
        parts += ["options:\n" + _listed(options), "commands:\n" + _listed(commands)]
        return "\n\n".join(parts)


def _nearest(word: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    found = get_close_matches(word, known, 1)
    return f"Did you mean {found[0]}? " if found else ""


def _listed(rows: list[tuple[str, str]]) -> str:
    """Return names with texts beside them."""
    wide = max(len(name) for name, _ in rows) + 4
    fill = textwrap.TextWrapper(width=_width(), subsequent_indent=" " * wide)
    return "\n".join(fill.fill(f"  {name}".ljust(wide) + " ".join(text.split())) for name, text in rows)
