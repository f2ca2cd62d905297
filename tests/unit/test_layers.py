"""Tests of the layers of `devshim/`: imports run down, also those in functions, and no module imports itself in a
cycle.

Each rule is a function that also gets a bad example, so that a rule that detects nothing fails.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

import devshim as ds

ROOT = Path(ds.__file__).parent
LAYERS = (
    {"_compiler_marks", "_html", "_version", "errors"},
    {"_lazy", "devices"},
    {"contract"},
    {"registry"},
    {"transfers"},
    {"models", "simulation"},
    {"trees"},
    {"placement"},
    {"tensors"},
    {"runtime", "monitoring"},
    {"interop", "checkpoints", "collectives"},
    {"backend", "adapters", "random", "tutorial", "world"},
    {"certify", "cli", "jupyter", "pytest_plugin", "sphinx", "testing", "__main__"},
)
"""Packages and modules below `devshim`, lowest first; the package itself is above them all."""
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}


def module_of(path: Path, root: Path = ROOT) -> str:
    """Return the dotted name of a file, such as ``devshim.trees.trees``."""
    parts = [root.name, *path.relative_to(root).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules() -> dict[str, str]:
    """Return module -> source, for every module below `devshim`."""
    found = (path for path in sorted(ROOT.rglob("*.py")) if "__pycache__" not in path.parts)
    return {module_of(path): path.read_text(encoding="utf-8") for path in found}


def imported(source: str, known: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Yield each known module that a source imports at run time, with True if the import is in a function."""
    known = set(known)
    stack: list[tuple[ast.AST, bool]] = [(ast.parse(source), False)]
    while stack:
        node, within = stack.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from ((each.name, within) for each in node.names if each.name in known)
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{each.name}" for each in node.names]
            found = {name if name in known else str(node.module) for name in names}
            yield from ((name, within) for name in sorted(found) if name in known)
        within = within or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        stack += [(child, within) for child in ast.iter_child_nodes(node)]


def part_of(module: str) -> str:
    """Return the package or module directly below `devshim` that a module belongs to; empty for `devshim` itself."""
    return module.partition(".")[2].partition(".")[0]


def upward(sources: Mapping[str, str]) -> list[str]:
    """Return the imports that do not run down: to a higher layer, or to another package of the same one."""
    found = []
    for module, source in sources.items():
        for name, _ in imported(source, sources):
            here, there = part_of(module), part_of(name)
            up = not there or (here != there and bool(here) and RANK[there] >= RANK[here])
            if up and RANK.get(here, 0) < len(LAYERS) - 1 and here:
                found.append(f"{module} imports {name}")
    return found


def cycle(sources: Mapping[str, str]) -> list[str]:
    """Return modules that import each other in a cycle, if there is one; imports in functions count."""
    left = {module: {name for name, _ in imported(source, sources)} - {module} for module, source in sources.items()}
    while True:
        free = {module for module, needs in left.items() if not needs & left.keys()}
        if not free:
            return sorted(left)
        left = {module: needs for module, needs in left.items() if module not in free}


def test_every_package_has_a_layer() -> None:
    assert {part_of(module) for module in modules()} - {""} == RANK.keys()


def test_there_are_at_most_thirteen() -> None:
    assert len(LAYERS) <= 13


def test_the_table_for_maintainers_shows_them() -> None:
    (page,) = [each for folder in Path(__file__).parents for each in folder.glob("docs/internals/index.md")]
    shown = re.findall(r"^\| \d+ \| ([^|]+) \|", page.read_text(encoding="utf-8"), re.MULTILINE)
    names = [{name for name in layer if not name.startswith("_")} for layer in LAYERS]
    assert [set(row.replace("`", "").split(", ")) for row in reversed(shown)] == names


def test_imports_run_down() -> None:
    assert upward(modules()) == []


def test_no_module_reaches_itself() -> None:
    assert cycle({module: source for module, source in modules().items() if module != "devshim"}) == []


BAD = {
    "from a lower layer": {"devshim.errors": "", "devshim.devices.device": "from devshim.trees import trees"},
    "in a function": {"devshim.devices.device": "def f():\n    from devshim.trees.trees import iter_leaves"},
    "beside it": {"devshim.runtime.memory": "import devshim.monitoring.guard"},
    "the whole package": {"devshim.trees.trees": "import devshim"},
}
OTHERS = dict.fromkeys(["devshim", "devshim.trees.trees", "devshim.monitoring.guard"], "")


@pytest.mark.parametrize("name", BAD)
def test_what_runs_up_is_seen(name: str) -> None:
    assert len(upward({**OTHERS, **BAD[name]})) == 1


def test_what_is_for_type_checkers_alone_does_not_count() -> None:
    source = "if TYPE_CHECKING:\n    from devshim.trees import trees"
    assert upward({**OTHERS, "devshim.devices.device": source}) == []


def test_a_circle_is_seen() -> None:
    ring = {"devshim.a": "import devshim.b", "devshim.b": "def f():\n    from devshim.c import d", "devshim.c": ""}
    assert cycle(ring) == []
    assert cycle({**ring, "devshim.c": "import devshim.a"}) == ["devshim.a", "devshim.b", "devshim.c"]
