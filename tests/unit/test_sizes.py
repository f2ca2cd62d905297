"""Tests of the sizes of functions and files: a function has at most 60 lines, and a module at most 300."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

FOLDERS = [Path(sys.modules[name].__path__[0]) for name in ("devshim", "devshim_backends")]
FUNCTION, MODULE = 60, 300


def too_long(source: str) -> Iterator[str]:
    """Yield the names of the functions that are too long, with their docstrings, and the length of the module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.end_lineno - node.lineno >= FUNCTION:
            yield node.name
    if source.count("\n") > MODULE:
        yield f"{source.count(chr(10))} lines"


def test_functions_and_modules_are_short() -> None:
    files = [path for folder in FOLDERS for path in sorted(folder.rglob("*.py"))]
    assert len(files) > 500
    found = {str(path): [*too_long(path.read_text(encoding="utf-8"))] for path in files}
    assert {path: names for path, names in found.items() if names} == {}


def test_a_long_function_and_a_long_module_are_found() -> None:
    assert [*too_long("def short():\n" + "    x = 1\n" * 59)] == []
    assert [*too_long("def long():\n" + "    x = 1\n" * 60)] == ["long"]
    assert [*too_long("x = 1\n" * 301)] == ["301 lines"]
