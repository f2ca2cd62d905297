"""The generator of mutants: a source file with one small fault, made by the usual operators of mutation testing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
BOOLEANS: dict[type[ast.boolop], tuple[str, str]] = {ast.And: ("and", "or"), ast.Or: ("or", "and")}


@dataclass(frozen=True)
class Mutant:
    """One fault in one file.

    Attributes:
        path: The file, relative to the checkout.
        line: The line of the fault.
        change: The text before and after.
        text: The original line.
        start: The start of the replaced text, in bytes.
        stop: Its end.
        new: Its replacement.
    """

    path: str
    line: int
    change: str
    text: str
    start: int
    stop: int
    new: str

    def source(self, original: bytes) -> bytes:
        """Return the file's text with the fault."""
        return original[: self.start] + self.new.encode() + original[self.stop :]


def mutants(root: Path, path: str) -> list[Mutant]:
    """Return every mutant of a file."""
    source = (root / path).read_bytes()
    return list(_Finder(path, source).found())


class _Finder:
    """A visitor that finds the places of one file for faults."""

    def __init__(self, path: str, source: bytes) -> None:
        self.path, self.source = path, source
        self.lines = source.splitlines(keepends=True)
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line))

    def found(self) -> Iterator[Mutant]:
        tree = ast.parse(self.source)
        skipped = _skipped(tree)
        for node in ast.walk(tree):
            if node in skipped:
                continue
            if isinstance(node, ast.Compare):
                yield from self._compared(node)
            elif isinstance(node, ast.BoolOp):
                for left, right in zip(node.values, node.values[1:], strict=False):
                    yield from self._between(left, right, *BOOLEANS[type(node.op)])
            elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
                start = self._start(node)
                yield self._made(node, start, start + len("not "), "", "not removed")
            elif isinstance(node, ast.Constant):
                yield from self._constant(node)
            elif isinstance(node, ast.Return) and node.value is not None and not _is_as_none(node.value):
                yield self._made(node, self._start(node.value), self._stop(node.value), "None", "return None")

    def _compared(self, node: ast.Compare) -> Iterator[Mutant]:
        sides = [node.left, *node.comparators]
        for left, op, right in zip(sides, node.ops, sides[1:], strict=False):
            yield from self._between(left, right, *COMPARISONS[type(op)])

    def _between(self, left: ast.expr, right: ast.expr, old: str, new: str) -> Iterator[Mutant]:
        start, stop = self._stop(left), self._start(right)
        at = self.source[start:stop].find(old.encode())
        if at >= 0:
            yield self._made(left, start + at, start + at + len(old), new, f"{old} -> {new}")

    def _constant(self, node: ast.Constant) -> Iterator[Mutant]:
        if isinstance(node.value, (bool, int, float)):
            new = repr(not node.value) if isinstance(node.value, bool) else repr(node.value + 1)
            yield self._made(node, self._start(node), self._stop(node), new, f"{node.value!r} -> {new}")

    def _made(self, node: ast.expr | ast.stmt, start: int, stop: int, new: str, change: str) -> Mutant:
        line = self.source[:start].count(b"\n") + 1
        return Mutant(self.path, line, change, self.lines[line - 1].decode().strip(), start, stop, new)

    def _start(self, node: ast.expr | ast.stmt) -> int:
        return self.starts[node.lineno - 1] + node.col_offset

    def _stop(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.starts[node.end_lineno - 1] + node.end_col_offset


def _is_as_none(node: ast.expr) -> bool:
    """Return True for None, and for False: in a test for truth None is equal, and a mutant with True exists anyway."""
    return isinstance(node, ast.Constant) and (node.value is None or node.value is False)


def _skipped(tree: ast.Module) -> set[ast.AST]:
    """Return the nodes that only a type checker reads: annotations, and code below ``if TYPE_CHECKING``."""
    found: set[ast.AST] = set()
    for node in ast.walk(tree):
        unread: list[ast.AST | None] = []
        if isinstance(node, (ast.AnnAssign, ast.arg)):
            unread.append(node.annotation)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            unread.append(node.returns)
        if isinstance(node, (ast.If, ast.Assign, ast.AnnAssign)) and "TYPE_CHECKING" in _names(node):
            unread.append(node)
        for each in unread:
            found.update(ast.walk(each) if each is not None else ())
    return found


def _names(node: ast.If | ast.Assign | ast.AnnAssign) -> set[str]:
    heads = node.targets if isinstance(node, ast.Assign) else [node.test if isinstance(node, ast.If) else node.target]
    return {head.id for head in heads if isinstance(head, ast.Name)}
