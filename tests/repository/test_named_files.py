"""Docstrings and the pages for maintainers name files, modules and functions that exist."""

from __future__ import annotations

import ast
import json
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted((ROOT / "docs/internals").glob("*.md")), ROOT / "CONTRIBUTING.md", ROOT / "backends/README.md"]
EXAMPLES = {"script.py", "test_mine.py", "strict_devshim.py", "test_strict.py"}
"""Files that a user would write."""
OF_OTHERS = ("autograph/impl/", "ipykernel_", "nnvm/")
"""Files of other projects, by a part of their path."""
PLAIN_BASES = ("ABC", "Protocol", "Generic", "object", "NamedTuple")
"""Bases without members that a docstring would name."""
FILE = re.compile(r"`(?:[\w<>]+: )?([\w/.]+\.(?:py|cc|yml|svg))\b`")
FUNCTION = re.compile(r"(?<!`)`(?:[a-z_]\w*\.)*([a-z_]\w*)\.(\w+)(?:\(\))?`(?!`)")
MEMBER = re.compile(r"(?<!`)`([A-Z]\w*)\.(\w+)(?:\(\))?`(?!`)")
FRAMEWORKS = re.compile(r"`(torch|tf|jax|np|numpy|mx|paddle|keras|ds|cupy|builtins|copy|time|jnp|nn|nnx)\.")


def tracked() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("this is a copy of the sources without git")
    return listed.stdout.split("\n")[:-1]


def missing_files(text: str, existing: list[str]) -> list[str]:
    """Return the files that a text names in backquotes and the project does not have, under any folder."""
    named = (name.removeprefix("./") for name in FILE.findall(text))
    ends = {f"/{path}" for path in existing}
    return [
        name
        for name in named
        if name not in EXAMPLES
        and not any(part in name for part in OF_OTHERS)
        and not any(path.endswith(f"/{name}") for path in ends)
    ]


def docstrings(source: str) -> Iterator[str]:
    """Yield the docstrings of a module, and the strings that describe its constants."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value


def names_in(source: str) -> set[str]:
    """Return the names that a module defines, imports or assigns, and its attributes."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {alias.asname or alias.name for alias in node.names}
    return found


def missing_functions(text: str, modules: dict[str, set[str]]) -> list[str]:
    """Return the references such as `hooks.fallback` to one of our modules that lacks the name."""
    return [
        f"{module}.{name}"
        for line in text.splitlines()
        if not FRAMEWORKS.search(line)
        for module, name in FUNCTION.findall(line)
        if module in modules and name not in modules[module] and name not in ("py", "md")
    ]


def members_of(sources: Iterable[str]) -> dict[str, set[str]]:
    """Return the members of each class, those of its bases included; no class with a base of another project."""
    own: defaultdict[str, set[str]] = defaultdict(set)
    bases: defaultdict[str, set[str]] = defaultdict(set)
    for source in sources:
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef):
                bases[node.name] |= {ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases}
                own[node.name] |= names_in("\n".join(map(ast.unparse, node.body)))

    complete = {}
    for name in own:
        family, waiting = {name}, [name]
        while waiting:
            more = bases[waiting.pop()] - set(PLAIN_BASES) - family
            family |= more
            waiting += more
        if family <= set(own):
            complete[name] = {member for each in family for member in own[each]}
    return complete


def missing_members(text: str, members: dict[str, set[str]]) -> list[str]:
    """Return the references such as `Backend.copy_to` to a class of ours that lacks the member."""
    return [f"{cls}.{name}" for cls, name in MEMBER.findall(text) if cls in members and name not in members[cls]]


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    """Return the text of each Python file of both packages."""
    files = [name for name in tracked() if name.startswith(("devshim/", "backends/")) and name.endswith(".py")]
    return {name: (ROOT / name).read_text(encoding="utf-8") for name in files if (ROOT / name).is_file()}


def test_a_file_that_prose_names_exists(sources: dict[str, str]) -> None:
    existing = tracked()
    texts = {name: "\n".join(docstrings(source)).replace("``", "`") for name, source in sources.items()}
    texts |= {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in PAGES}
    found = {name: missing_files(text, existing) for name, text in texts.items()}
    assert {name: files for name, files in found.items() if files} == {}


def test_a_function_that_a_docstring_names_exists(sources: dict[str, str]) -> None:
    modules: defaultdict[str, set[str]] = defaultdict(set)
    for name, source in sources.items():
        path = Path(name)
        modules[path.parent.name if path.stem == "__init__" else path.stem] |= names_in(source)
        modules[path.parent.name].add(path.stem)
        modules[path.parent.parent.name].add(path.parent.name)
    modules["devshim"] |= names_in((ROOT / "devshim/__init__.pyi").read_text(encoding="utf-8"))
    found = {name: missing_functions("\n".join(docstrings(source)), modules) for name, source in sources.items()}
    assert {name: functions for name, functions in found.items() if functions} == {}


def test_a_member_that_a_docstring_names_exists(sources: dict[str, str]) -> None:
    members = members_of(sources.values())
    found = {name: missing_members("\n".join(docstrings(source)), members) for name, source in sources.items()}
    assert {name: references for name, references in found.items() if references} == {}


def test_the_record_of_mutants_names_files_that_exist() -> None:
    """A file that was renamed: change its path in docs/mutants.json and tests/mutants/known.py, or judge again."""
    results = json.loads((ROOT / "docs/mutants.json").read_text(encoding="utf-8"))["results"]
    known = ast.parse((ROOT / "tests/mutants/known.py").read_text(encoding="utf-8"))
    strings = [node.value for node in ast.walk(known) if isinstance(node, ast.Constant)]
    keys = [each for each in strings if re.fullmatch(r"devshim/[\w/]+\.py", str(each))]
    named = {each["path"] for each in results} | {each["by"].partition("::")[0] for each in results} | set(keys)
    assert len(results) > 50
    assert len(keys) > 2
    assert sorted(named - {""} - set(tracked())) == []


def test_what_does_not_exist_is_noticed() -> None:
    assert missing_files("`hooks.py`, `a/gone.py`, `script.py`", ["x/hooks.py", "b/a/here.py"]) == ["a/gone.py"]
    modules = {"hooks": {"fallback"}}
    assert missing_functions("`hooks.fallback`, `simulation.hooks.gone`", modules) == ["hooks.gone"]
    assert missing_functions("`torch.hooks.gone`, ``hooks.gone``, `other.gone`", modules) == []
    members = members_of(["class A:\n    x: int\n\nclass B(A):\n    def f(self): self.y = 1\n\nclass C(Other): pass"])
    assert missing_members("`A.x`, `B.x`, `B.f()`, `B.y`, `C.z`, `D.z`, ``A.z``", members) == []
    assert missing_members("`A.f`, `B.z`", members) == ["A.f", "B.z"]
