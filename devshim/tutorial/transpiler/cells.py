"""Rewrite all cells of a page into a framework's own code, with the imports and functions that they need."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import libcst as cst

from devshim.tutorial.transpiler.calls import Ran, Seen
from devshim.tutorial.transpiler.names import Names, read_names
from devshim.tutorial.transpiler.rewriting import Left, Rewritten, rewrite
from devshim.tutorial.transpiler.templates import NativeCode, uses

__all__ = ["Cell", "Translated", "changed_lines", "translate_cells"]

_MAGIC = re.compile(r"^(\s*)([%!?].*|.*\?)$")
_MASK = "__devshim_magic_{}__"


@dataclass(frozen=True)
class Cell:
    """A code cell: its source, the devshim calls that ran in it on the framework in question, and if it raised."""

    source: str
    calls: Sequence[Ran] = ()
    raised: bool = False


@dataclass
class Translated:
    """A page's cells in a framework's own code.

    Attributes:
        setup: The code of the first cell: imports, and functions that the cells use.
        sources: The code of each cell.
        left: For each cell, the names of devshim that were not translated.
        done: The number of calls that were translated.
        functions: Name -> definition, of the functions in ``setup``.
    """

    setup: str
    sources: list[str]
    left: list[list[Left]] = field(default_factory=list)
    done: int = 0
    functions: dict[str, str] = field(default_factory=dict)

    def functions_in(self, code: str) -> list[str]:
        """Return the functions of ``setup`` that code calls, those that they call themselves first."""
        called = {name for name in self.functions if uses(name, code)}
        behind = {name for name in self.functions for each in called - {name} if uses(name, self.functions[each])}
        return [name for name in self.functions if name in called | behind]

    @property
    def needs_devshim(self) -> bool:
        """True if a cell still calls devshim."""
        return any(self.left)


def translate_cells(cells: Sequence[Cell], native: NativeCode) -> Translated:
    """Return cells in a framework's own code; a cell that is not Python is unchanged."""
    names = read_names([_mask_magics(cell.source)[0] for cell in cells])
    _reserve(native, names)
    found = [_rewrite(cell, native, names) for cell in cells]
    helpers = [helper for each in found for helper in each.helpers]
    sources = [each.source for each in found]
    code = [*sources, *helpers]
    wanted = native.needed(code)
    imports = [native.helpers[name].strip() for name in wanted if _is_import(native.helpers[name])]
    functions = {name: native.helpers[name].strip() for name in wanted if not _is_import(native.helpers[name])}
    functions.update((_name_of(helper), helper.strip()) for helper in helpers)
    left = [each.left for each in found]
    if any(left):
        imports.append("import devshim as ds")
    first, _, rest = native.setup.partition("\n\n")
    head = "\n".join([*first.split("\n"), *imports])
    setup = "\n\n\n".join(filter(None, [head + (f"\n\n{rest}" if rest else ""), *functions.values()]))
    sources = [_without_import(source) for source in sources]
    return Translated(setup + "\n", sources, left, sum(each.done for each in found), functions)


def changed_lines(before: str, after: str) -> list[str]:
    """Return the lines of native code in a rewritten cell: those that the neutral cell does not have.

    The only statement of a block starts at the left.
    """
    from difflib import SequenceMatcher
    from textwrap import dedent

    old, new = before.split("\n"), after.split("\n")
    found: list[str] = []
    for tag, _, _, start, stop in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag in ("replace", "insert"):
            block = dedent("\n".join(line for line in new[start:stop] if line.strip()))
            found += [line for line in block.split("\n") if line and not line.lstrip().startswith("#")]
    return found


def _rewrite(cell: Cell, native: NativeCode, names: Names) -> Rewritten:
    masked, magics = _mask_magics(cell.source)
    try:
        found = rewrite(masked, native, Seen(list(cell.calls), cell.raised), names)
    except cst.ParserSyntaxError:
        return Rewritten(cell.source)
    for mask, magic in magics.items():
        found.source = found.source.replace(mask, magic)
    return found


def _mask_magics(source: str) -> tuple[str, dict[str, str]]:
    """Return code whose magics are names, and the magic behind each name; a cell with a cell magic has no Python."""
    magics: dict[str, str] = {}
    lines = []
    for number, line in enumerate(source.split("\n")):
        match = _MAGIC.match(line)
        if match and not line.lstrip().startswith("%%"):
            mask = _MASK.format(number)
            magics[mask] = match[2]
            line = match[1] + mask
        lines.append(line)
    return "\n".join(lines), magics


def _reserve(native: NativeCode, names: Names) -> None:
    """Keep the names of the set-up cell from new variables."""
    names.used.update(re.findall(r"\w+", native.setup), native.helpers)


def _name_of(function: str) -> str:
    return function.partition("def ")[2].partition("(")[0]


def _is_import(code: str) -> bool:
    return re.match(r"\s*(import|from) ", code) is not None


def _without_import(source: str) -> str:
    """Return a cell without ``import devshim as ds``: the set-up cell has it if anything needs it."""
    return "\n".join(line for line in source.split("\n") if line.strip() != "import devshim as ds").strip("\n")
