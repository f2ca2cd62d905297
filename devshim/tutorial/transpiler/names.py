"""The meaning of the names in the code of a page: the aliases of devshim, and variables that only ever hold text."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field

__all__ = ["Names", "read_names"]


@dataclass
class Names:
    """The names in the cells of a page.

    Attributes:
        modules: Aliases of the package, such as ``"ds"`` -> ``""``, and of ``devshim.random`` -> ``"random"``.
        functions: Names of imported functions, such as ``"place"`` -> ``"place"``.
        texts: Variables to which only text is assigned, such as ``where = "gpu:1"``.
        used: Every identifier.
    """

    modules: dict[str, str] = field(default_factory=lambda: {"ds": ""})
    functions: dict[str, str] = field(default_factory=dict)
    texts: set[str] = field(default_factory=set)
    used: set[str] = field(default_factory=set)

    def public(self, dotted: str) -> str | None:
        """Return the public name behind a dotted name, such as ``"random.seed"``; None if it is not devshim's."""
        if dotted in self.functions:
            return self.functions[dotted]
        first, _, rest = dotted.partition(".")
        if first in self.modules and rest:
            return ".".join(filter(None, [self.modules[first], rest]))
        return None

    def free(self, wanted: str) -> str:
        """Return a name that the page does not use, and use it."""
        names = (wanted if n == 1 else f"{wanted}_{n}" for n in range(1, 10_000))
        name = next(each for each in names if each not in self.used)
        self.used.add(name)
        return name


def read_names(sources: Iterable[str]) -> Names:
    """Return the names in the source of all cells of a page; a cell that is not Python is left out."""
    names = Names()
    others: set[str] = set()
    for source in sources:
        try:
            tree = ast.parse(source)
        except SyntaxError:
            continue
        for node in ast.walk(tree):
            _read(node, names, others)
    names.texts -= others
    return names


def _read(node: ast.AST, names: Names, others: set[str]) -> None:
    if isinstance(node, ast.Import):
        for alias in node.names:
            if alias.name == "devshim" or (alias.name == "devshim.random" and alias.asname):
                names.modules[alias.asname or "devshim"] = alias.name.removeprefix("devshim").removeprefix(".")
    elif isinstance(node, ast.ImportFrom) and node.module in ("devshim", "devshim.random") and not node.level:
        base = node.module.removeprefix("devshim").removeprefix(".")
        for alias in node.names:
            public = ".".join(filter(None, [base, alias.name]))
            table = names.modules if public == "random" else names.functions
            table[alias.asname or alias.name] = public
    elif isinstance(node, ast.Name):
        names.used.add(node.id)
        if isinstance(node.ctx, ast.Store):
            others.add(node.id)  # `_read` of the assignment below takes it out again
    elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        names.used.add(node.name)
    elif isinstance(node, ast.arg):
        others.add(node.arg)
        names.used.add(node.arg)
    if isinstance(node, ast.Assign) and _is_text(node.value):
        _note_texts(node.targets, names)
    elif isinstance(node, ast.For) and _is_text_list(node.iter):
        _note_texts([node.target], names)


def _note_texts(targets: list[ast.expr], names: Names) -> None:
    for target in targets:
        if isinstance(target, ast.Name):
            names.texts.add(target.id)
            target.ctx = ast.Load()  # this assignment is of text: `others` collects the rest


def _is_text_list(node: ast.expr) -> bool:
    return isinstance(node, (ast.List, ast.Tuple)) and all(map(_is_text, node.elts))


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
