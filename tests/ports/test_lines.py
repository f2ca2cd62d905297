"""The numbers of lines in ``docs/ports.md``: how much device code of POT and TensorLy the examples replace."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = " ".join((ROOT / "docs/ports.md").read_text(encoding="utf-8").split())
BASES = {"Backend", "BackendManager"}
"""Classes that are not the backend of one framework."""


def classes(path: Path) -> dict[str, list[ast.FunctionDef]]:
    """Return the methods of each class of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return {node.name: [each for each in node.body if isinstance(each, ast.FunctionDef)] for node in found}


def lines(method: ast.FunctionDef) -> int:
    """Return how many lines of a method are code, without decorators and docstring."""
    body = method.body[1:] if ast.get_docstring(method) else method.body
    inside = (node for statement in body for node in ast.walk(statement) if isinstance(node, (ast.stmt, ast.expr)))
    spans = ((node.lineno, node.end_lineno or node.lineno) for node in inside)
    return 1 + len({line for first, last in spans for line in range(first, last + 1)})


@pytest.mark.parametrize(
    ("example", "package", "pattern"),
    [("pot_devices.py", "ot", "backend.py"), ("tensorly_devices.py", "tensorly", "backend/*_backend.py")],
    ids=["pot", "tensorly"],
)
def test_the_page_counts_the_lines_that_the_example_replaces(example: str, package: str, pattern: str) -> None:
    (mixin,) = classes(ROOT / "examples/ports" / example).values()
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    files = Path(spec.origin).parent.glob(pattern)
    backends = {name: methods for file in files for name, methods in classes(file).items() if name not in BASES}
    replaced = {method.name for method in mixin}
    theirs = sum(lines(each) for methods in backends.values() for each in methods if each.name in replaced)
    said = f"{theirs} lines of code in {len(backends)} classes with {sum(map(lines, mixin))} lines in one"
    assert said in PAGE, said
