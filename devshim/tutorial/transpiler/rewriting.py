"""Rewrite the code of a cell: replace each devshim call at its place, and keep everything else unchanged.

libcst keeps comments, blank lines and the author's names. Native code that is made of statements is put before the
statement of the call, in the same block; where that would change the order in which the program computes, a helper
function is made from it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

import libcst as cst
from libcst.metadata import CodeRange, MetadataWrapper, ParentNodeProvider, PositionProvider

from devshim.tutorial.transpiler import translation
from devshim.tutorial.transpiler.calls import Ran, Seen
from devshim.tutorial.transpiler.names import Names
from devshim.tutorial.transpiler.templates import NativeCode, Unfilled
from devshim.tutorial.transpiler.translation import Argument, Filled

__all__ = ["Left", "Rewritten", "rewrite"]

_DONE = "__devshim_done__"
"""The value of a statement that its native code has replaced."""
_BARRIERS = (
    *(cst.Lambda, cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp, cst.IfExp, cst.BooleanOperation),
    *(cst.NamedExpr, cst.Await, cst.Assert, cst.SimpleStatementSuite, cst.FormattedString),
)
"""Inside these, a call is not always computed, or not first."""


@dataclass(frozen=True)
class Left:
    """A name of devshim that was not translated: which, its line in the cell, and why."""

    name: str
    line: int
    reason: str


@dataclass
class Rewritten:
    """A cell in native code, the calls that were left, how many were translated, and the helper functions it needs."""

    source: str
    left: list[Left] = field(default_factory=list)
    done: int = 0
    helpers: list[str] = field(default_factory=list)


def rewrite(source: str, native: NativeCode, seen: Seen, names: Names) -> Rewritten:
    """Return a cell in a framework's own code.

    Args:
        source: The code of the cell, without magics.
        native: The framework's templates.
        seen: The calls of this cell that ran.
        names: The names of the whole page.

    Raises:
        cst.ParserSyntaxError: The code is not Python.
    """
    rewriter = _Rewriter(native, seen, names)
    text = _parse(source).visit(rewriter).code
    return Rewritten(text, sorted(rewriter.left, key=lambda each: each.line), rewriter.done, rewriter.helpers)


@lru_cache(maxsize=256)
def _parse(source: str) -> MetadataWrapper:
    """Return the tree of a cell with the places and parents of its nodes: the same for all frameworks of a page."""
    return MetadataWrapper(cst.parse_module(source))


class _Rewriter(cst.CSTTransformer):  # type: ignore[misc]
    METADATA_DEPENDENCIES = (PositionProvider, ParentNodeProvider)

    def __init__(self, native: NativeCode, seen: Seen, names: Names) -> None:
        super().__init__()
        self._native, self._seen, self._names = native, seen, names
        self._hoisted: list[list[str]] = []
        self.left: list[Left] = []
        self.done = 0
        self.helpers: list[str] = []

    # ---------------------------------------------------------------- calls
    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        public = self._public(original_node.func)
        if public is None:
            return updated_node
        parent = self._parent(original_node)
        place = self._position(original_node)
        ran = self._seen.at(place.start.line, place.start.column, (place.end.line, place.end.column))
        if not ran and self._seen.raised and public in ("place", "copy"):
            ran = [Ran(public, place.start.line)]  # it refused its arguments: most are tensors
        arguments = [self._argument(a, b) for a, b in zip(original_node.args, updated_node.args, strict=True)]
        whole = isinstance(parent, (cst.Assign, cst.Expr, cst.Return))
        nested = ("compared", "nested") if isinstance(parent, cst.Comparison) else () if whole else ("nested",)
        try:
            scope = isinstance(parent, cst.WithItem) and parent.asname is None
            filled = translation.translate(self._native, public, arguments, ran, nested, scope=scope)
            found = self._put(original_node, public, filled)
        except (Unfilled, cst.ParserSyntaxError) as problem:
            reason = str(problem) if isinstance(problem, Unfilled) else "cannot be written here"
            self.left.append(Left(f"ds.{public}", place.start.line, reason))
            return updated_node
        self.done += 1
        return found

    def _put(self, node: cst.Call, public: str, filled: Filled) -> cst.BaseExpression:
        """Return the expression that takes the place of a call, and hoist the statements that it needs."""
        if not filled.is_statement:
            found = cst.parse_expression(filled.text())
            is_first = isinstance(self._parent(node), (cst.Attribute, cst.Subscript, cst.Call))
            if isinstance(found, (cst.BinaryOperation, cst.IfExp, cst.Lambda)) and is_first:
                return found.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
            return found
        if not self._can_hoist(node):
            return self._call_helper(public, filled)
        parent = self._parent(node)
        y, value = self._target(node, parent, public, filled)
        text = filled.text(y)
        if isinstance(parent, cst.Return) and value == _DONE:
            text = re.sub(r"^(\s*)return = ", r"\1return ", text, flags=re.MULTILINE)
        statements = _drop_self_assignments(text)
        cst.parse_module(statements)
        self._hoisted[-1].append(statements)
        return cst.parse_expression(value)

    def _target(self, node: cst.Call, parent: cst.CSTNode | None, public: str, filled: Filled) -> tuple[str, str]:
        """Return the variable for the result of hoisted statements, and the expression that takes the call's place."""
        fixed = self._native.targets.get(public)
        if fixed is not None:
            if not isinstance(parent, cst.Expr) or self._in_function(node):
                msg = "has native code only as a separate statement"
                raise Unfilled(msg)
            return fixed, _DONE
        if isinstance(parent, cst.Assign) and len(parent.targets) == 1:
            return cst.Module([]).code_for_node(parent.targets[0].target), _DONE
        if isinstance(parent, cst.Return) and filled.template.count("{y}") == 1:
            return "return", _DONE
        x = filled.given.get("x", "")
        if isinstance(parent, cst.Expr) and filled.in_place:
            return x, (x if self._is_shown(parent) else _DONE)
        name = self._names.free("result")
        return name, (name if not isinstance(parent, cst.Expr) or self._is_shown(parent) else _DONE)

    def _call_helper(self, public: str, filled: Filled) -> cst.BaseExpression:
        """Make a helper function of statements, and return a call of it."""
        used = [name for name in dict.fromkeys(re.findall(r"\{(\w+)[|}]", filled.template)) if name != "y"]
        texts = {name: filled.given.get(name, filled.known.get(name)) for name in used}
        arguments = {name: text for name, text in texts.items() if text is not None}
        if "args" in arguments:
            msg = "has native code only as a statement, which cannot be put before this one"
            raise Unfilled(msg)
        known = {name: name for name in arguments}
        body = Filled(filled.template, {n: n for n in filled.given if n in known}, known).text("result")
        name = self._names.free(f"{public.rpartition('.')[2]}_on_device")
        lines = "\n".join(f"    {line}" for line in [*body.split("\n"), "return result"])
        self.helpers.append(f"def {name}({', '.join(arguments)}):\n{lines}\n")
        return cst.parse_expression(f"{name}({', '.join(arguments.values())})")

    # ---------------------------------------------------------------- statements
    def visit_SimpleStatementLine(self, node: cst.SimpleStatementLine) -> None:
        self._hoisted.append([])

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement]:
        hoisted = self._hoisted.pop()
        if not hoisted:
            return updated_node
        new = [statement for text in hoisted for statement in cst.parse_module(text).body]
        leading = list(updated_node.leading_lines)
        comment = updated_node.trailing_whitespace.comment
        rest = [each for each in updated_node.body if not _is_done(each)]
        if rest:
            new.append(updated_node.with_changes(body=rest, leading_lines=[]))
        elif comment is not None:
            leading.append(cst.EmptyLine(comment=comment))
        return cst.FlattenSentinel([new[0].with_changes(leading_lines=leading), *new[1:]])

    def _can_hoist(self, node: cst.Call) -> bool:
        """Return True if the call is the first thing that its statement computes, and is always computed."""
        inside: cst.CSTNode = node
        ancestors = {id(node)}
        while not isinstance(inside, cst.SimpleStatementLine):
            parent = self._parent(inside)
            if parent is None or isinstance(parent, (*_BARRIERS, cst.BaseCompoundStatement)):
                return False
            if isinstance(parent, cst.Comparison) and len(parent.comparisons) > 1:
                return False
            inside = parent
            ancestors.add(id(inside))
        if len(inside.body) > 1:
            return False
        start = self._position(node).start
        calls = _Calls()
        inside.visit(calls)
        before = [each for each in calls.found if id(each) not in ancestors and self._is_before(each, start)]
        return all(isinstance(each, cst.Call) and self._public(each.func) for each in before)

    def _is_before(self, node: cst.CSTNode, start: object) -> bool:
        position = self._position(node).start
        return (position.line, position.column) < (start.line, start.column)  # type: ignore[attr-defined]

    # ---------------------------------------------------------------- names
    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        parent = self._parent(original_node)
        is_part = isinstance(parent, cst.Attribute) or (isinstance(parent, cst.Call) and parent.func is original_node)
        public = None if is_part else self._public(original_node)
        if public is not None:
            line = self._position(original_node).start.line
            self.left.append(Left(f"ds.{public}", line, "is a name of devshim"))
        return updated_node

    def _public(self, node: cst.BaseExpression) -> str | None:
        dotted = _dotted_name(node)
        return None if dotted is None else self._names.public(dotted)

    def _argument(self, original: cst.Arg, updated: cst.Arg) -> Argument:
        value = original.value
        items = value.elements if isinstance(value, (cst.List, cst.Tuple)) else ()
        devices = tuple(self._device(each.value) or "" for each in items)
        return Argument(
            cst.Module([]).code_for_node(updated.value),
            None if original.keyword is None else original.keyword.value,
            self._device(value),
            devices if devices and all(devices) else None,
            isinstance(value, cst.Name) and value.value in self._names.texts,
            original.star,
        )

    def _device(self, node: cst.BaseExpression) -> str | None:
        """Return the device that an expression names by literals."""
        if isinstance(node, cst.SimpleString) and isinstance(node.evaluated_value, str):
            return translation.device_of_text(node.evaluated_value)
        public = self._public(node.func) if isinstance(node, cst.Call) else None
        if public is None or not isinstance(node, cst.Call):
            return None
        return translation.literal_device(public, [self._argument(each, each) for each in node.args])

    def _is_shown(self, node: cst.Expr) -> bool:
        """Return True for the last statement of a cell, whose value a notebook shows."""
        line = self._parent(node)
        module = None if line is None else self._parent(line)
        return isinstance(module, cst.Module) and module.body[-1] is line

    def _in_function(self, node: cst.CSTNode | None) -> bool:
        while node is not None and not isinstance(node, cst.FunctionDef):
            node = self._parent(node)
        return node is not None

    def _position(self, node: cst.CSTNode) -> CodeRange:
        found: CodeRange = self.get_metadata(PositionProvider, node)
        return found

    def _parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        found: cst.CSTNode | None = self.get_metadata(ParentNodeProvider, node, None)
        return found


class _Calls(cst.CSTVisitor):  # type: ignore[misc]
    """Finds what runs other code; `libcst.matchers` could, but takes 0.2 s to import."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[cst.CSTNode] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, (cst.Call, cst.Await, cst.Yield)):
            self.found.append(node)
        return True


def _dotted_name(node: cst.BaseExpression) -> str | None:
    if isinstance(node, cst.Name):
        return str(node.value)
    if isinstance(node, cst.Attribute):
        before = _dotted_name(node.value)
        return None if before is None else f"{before}.{node.attr.value}"
    return None


def _is_done(statement: cst.BaseSmallStatement) -> bool:
    value = getattr(statement, "value", None)
    return isinstance(value, cst.Name) and value.value == _DONE


def _drop_self_assignments(text: str) -> str:
    """Return statements without assignments of a variable to itself."""
    text = re.sub(r"^(\s*)([\w.]+) = \2 = ", r"\1\2 = ", text, flags=re.MULTILINE)
    lines = [line for line in text.split("\n") if not re.fullmatch(r"\s*([\w.]+) = \1", line)]
    return "\n".join(lines) + "\n"
