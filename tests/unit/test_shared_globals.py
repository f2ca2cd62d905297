"""Tests that globals which another thread may change are read once: the value that was tested is the value used.

A *changing global* is a module's variable that a function assigns (``global NAME`` in its own module, ``module.NAME =``
in another), or a module's dict from which a function removes entries. The rule is a function of source text, and also
gets bad examples, so that a rule that detects nothing fails.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import devshim as ds

NEUTRAL = Path(ds.__file__).parent
ADAPTERS = Path(sys.modules["devshim_backends"].__path__[0])
KIT = NEUTRAL / "testing"
FILES = sorted(path for folder in (NEUTRAL, ADAPTERS) for path in folder.rglob("*.py") if KIT not in path.parents)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
TAKING_OUT = {"pop", "popitem", "clear"}


def module_name(path: Path) -> str:
    root = NEUTRAL.parent if NEUTRAL in path.parents else ADAPTERS.parent
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def imported(tree: ast.Module) -> dict[str, str]:
    """Return the imported names of a module: local name -> module, or module and name."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})
    return found


def dotted(node: ast.AST, module: str, names: dict[str, str]) -> str | None:
    """Return the full name of a module's variable that an expression reads or writes; None for anything else."""
    if isinstance(node, ast.Name):
        return names.get(node.id, f"{module}.{node.id}")
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names:
        return f"{names[node.value.id]}.{node.attr}"
    return None


def functions(tree: ast.AST) -> Iterator[Any]:
    return (node for node in ast.walk(tree) if isinstance(node, FUNCTIONS))


def inside(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function, without those of functions in it, and without code that runs with a lock held."""
    for child in ast.iter_child_nodes(function):
        if isinstance(child, FUNCTIONS) or (isinstance(child, ast.With) and any(map(_is_lock, child.items))):
            continue
        yield child
        yield from inside(child)


def _is_lock(item: ast.withitem) -> bool:
    name = ast.unparse(item.context_expr).rpartition(".")[2].upper()
    return "LOCK" in name or "COUNTING" in name


def assigned(source: str, module: str) -> set[str]:
    """Return the changing globals that one module's functions assign."""
    tree = ast.parse(source)
    names, found = imported(tree), set()
    for function in functions(tree):
        own = {name for node in ast.walk(function) if isinstance(node, ast.Global) for name in node.names}
        found |= {f"{module}.{name}" for name in own}
        for node in ast.walk(function):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                full = dotted(node, module, names)
                found |= {full} if full is not None and full.rpartition(".")[0] in MODULES else set()
    return found


def emptied(source: str, module: str) -> set[str]:
    """Return the dicts of a module from which one module's functions remove entries."""
    tree = ast.parse(source)
    names, found = imported(tree), set()
    own = {ast.unparse(node.target) for node in tree.body if isinstance(node, ast.AnnAssign)}
    for function in functions(tree):
        for node in ast.walk(function):
            taken = None
            if isinstance(node, ast.Delete) and isinstance(node.targets[0], ast.Subscript):
                taken = node.targets[0].value
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in TAKING_OUT:
                taken = node.func.value
            if taken is not None and (not isinstance(taken, ast.Name) or taken.id in own):
                full = dotted(taken, module, names)
                found |= {full} if full is not None else set()
    return found


def read_twice(source: str, module: str, changing: Iterable[str]) -> list[str]:
    """Return the functions that test a changing global, and read it again outside of a lock."""
    tree = ast.parse(source)
    names, found = imported(tree), []
    for function in functions(tree):
        nodes = list(inside(function))
        local = {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}
        local |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        reported = {name for node in nodes if isinstance(node, ast.Global) for name in node.names}
        tested = {id(part) for node in nodes for part in _tested(node)}
        reads: dict[str, list[Any]] = {}
        for node in nodes:
            full = dotted(node, module, names)
            mine = isinstance(node, ast.Name) and node.id in local - reported
            if full in changing and isinstance(getattr(node, "ctx", None), ast.Load) and not mine:
                reads.setdefault(full, []).append(node)
        for full, all_of_it in reads.items():
            if len(all_of_it) > 1 and any(id(node) in tested for node in all_of_it):
                name = getattr(function, "name", "lambda")
                found.append(f"{name} reads {full} in lines {[node.lineno for node in all_of_it]}")
    return found


def _tested(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the expressions that a node tests for truth, compares, or uses for a lookup."""
    if isinstance(node, (ast.If, ast.IfExp, ast.Assert)):  # `while entries: entries.pop()` removes them itself
        yield node.test
    elif isinstance(node, ast.BoolOp):
        yield from node.values
    elif isinstance(node, ast.Compare):
        yield from (node.left, *node.comparators)
    elif isinstance(node, ast.UnaryOp):
        yield node.operand
    elif isinstance(node, ast.comprehension):
        yield from node.ifs


TEXTS = {module_name(path): path.read_text(encoding="utf-8") for path in FILES}
MODULES = set(TEXTS)
CHANGING = set().union(*(assigned(text, name) | emptied(text, name) for name, text in TEXTS.items()))


@pytest.mark.parametrize("module", TEXTS)
def test_what_another_thread_may_change_is_read_once(module: str) -> None:
    assert read_twice(TEXTS[module], module, CHANGING) == []


def test_the_flag_of_observers_is_among_them() -> None:
    assert "devshim.transfers.observing.ACTIVE" in CHANGING


BAD = """
from devshim.transfers import observing

_hook = None
_cards: dict[int, int] = {}

def assign(hook):
    global _hook
    _hook = hook
    observing.ACTIVE = hook
    _cards.clear()

def tests_and_calls(x):
    if _hook is not None:
        _hook(x)

def tests_both(x):
    if x and observing.ACTIVE is not None:
        return observing.ACTIVE(x)

def looks_up(x):
    return [_cards[each] for each in x if each in _cards]

def truth(x):
    return _hook(x) if _hook else x
"""
GOOD = """
from devshim.transfers import observing

_LOCK = allocate_lock()

def reads_once(x):
    hook, ledger = _hook, observing.ACTIVE
    if hook is not None and ledger is not None:
        hook(ledger(x))
    return None if _cards.get(x) is None else x

def with_the_lock(x):
    with _LOCK:
        if _hook is not None:
            _hook(x)

def its_own(_hook):
    if _hook is not None:
        _hook()
"""


def test_the_rule_sees_what_breaks_it() -> None:
    changing = assigned(BAD, "devshim.bad") | emptied(BAD, "devshim.bad")
    assert changing == {"devshim.bad._hook", "devshim.transfers.observing.ACTIVE", "devshim.bad._cards"}
    names = [text.partition(" ")[0] for text in read_twice(BAD, "devshim.bad", changing)]
    assert names == ["tests_and_calls", "tests_both", "looks_up", "truth"]
    assert read_twice(GOOD, "devshim.bad", changing) == []
