"""The generator of ``devshim/__init__.pyi``: the names of ``devshim/__init__.py``, for type checkers and editors.

The package loads its public names when they are first used, which type checkers and editors cannot follow. The stub
imports each of them from its module, and nothing else: a misspelt name is an error. Run it from the repository's root:

    python tests/typing/stub.py --write     # after a change of `__all__`
    python tests/typing/stub.py --check     # what the lint session runs
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PACKAGE = Path("devshim")
STUB = PACKAGE / "__init__.pyi"
HEAD = '''"""{words}"""

# Made by tests/typing/stub.py of devshim/__init__.py and devshim/_lazy.py: run `python tests/typing/stub.py --write`.
'''


def stub(package: Path = PACKAGE) -> str:
    """Return the text of the stub; this only reads sources, and imports nothing.

    Raises:
        SystemExit: A name of `__all__` comes from no module, or one that a module provides is not in `__all__`.
    """
    source = ast.parse((package / "__init__.py").read_text(encoding="utf-8"))
    public = _literal(source, "__all__")
    homes = {"random": "devshim", **_imported(source), **_lazy(package)}
    _refuse({f"{name} is in __all__, and no module gives it" for name in set(public) - set(homes) - {"__version__"}})
    _refuse({f"{name} is loaded from {homes[name]}, and is not in __all__" for name in set(homes) - set(public)})
    lines = sorted(f"from {homes[name]} import {name} as {name}" for name in public if name in homes)
    listed = "".join(f'    "{name}",\n' for name in public)
    words = ast.get_docstring(source, clean=False)
    return f"{HEAD.format(words=words)}\n{chr(10).join(lines)}\n\n__version__: str\n\n__all__ = [\n{listed}]\n"


def _literal(module: ast.Module, name: str) -> Any:
    """Return the value that a module assigns to a name, read without running it."""
    for node in module.body:
        if isinstance(node, ast.Assign) and any(isinstance(to, ast.Name) and to.id == name for to in node.targets):
            return ast.literal_eval(node.value)
    raise SystemExit(f"{name} is not assigned")


def _imported(module: ast.Module) -> dict[str, str]:
    """Return name -> module of a module's public imports, which do not start with an underscore."""
    found = {}
    for node in module.body:
        if isinstance(node, ast.ImportFrom) and node.module != "__future__":
            found.update({each.asname or each.name: str(node.module) for each in node.names})
    return {name: home for name, home in found.items() if not name.startswith("_")}


def _lazy(package: Path) -> dict[str, str]:
    """Return name -> module of the names that are loaded when they are first used."""
    source = ast.parse((package / "_lazy.py").read_text(encoding="utf-8"))
    return {name: home for home, names in _literal(source, "HOMES").items() for name in names.split()}


def _refuse(problems: set[str]) -> None:
    if problems:
        raise SystemExit("\n".join(sorted(problems)))


def main(argv: Sequence[str] | None = None) -> int:
    """Write the stub, or compare it with the existing one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--write", action="store_true")
    mode.add_argument("--check", action="store_true")
    if parser.parse_args(argv).write:
        STUB.write_text(stub(), encoding="utf-8")
    elif not STUB.exists() or STUB.read_text(encoding="utf-8") != stub():
        print(f"{STUB} is out of date: run `python tests/typing/stub.py --write`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
