"""Run the native statements of a framework on one GPU, and write what each gives: ``run_statements.py torch FILE``.

A value is its text, and what it printed. An error is the name of its class, the names of the classes above, and its
text. The program imports the framework and nothing of devshim, so the same file runs on a real card and, by ``devshim
run --gpus 1``, on a simulated one.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def groups(framework: str) -> dict[str, list[str]]:
    """Return the statements of a framework, by group: a line ``# words`` begins one."""
    found: dict[str, list[str]] = {}
    for line in (HERE / f"{framework}.txt").read_text().splitlines():
        if line.startswith("# "):
            found[line[2:]] = []
        elif line:
            found[list(found)[-1]].append(line)
    return found


def run(statement: str, names: dict[str, Any]) -> dict[str, Any]:
    """Run one statement, and return what it gives."""
    *before, last = statement.split("; ")
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            for each in before:
                exec(each, names)
            value = repr(eval(last, names))
    except BaseException as error:
        bases = [each.__name__ for each in type(error).__mro__[1:-1]]
        return {"error": type(error).__name__, "bases": bases, "text": str(error)}
    return {"value": value, **({"printed": printed.getvalue()} if printed.getvalue() else {})}


def main() -> None:
    """Run every statement in order, in one process."""
    framework, file = sys.argv[1:]
    sys.path.insert(0, str(HERE))
    names = dict(vars(importlib.import_module(f"{framework}_helpers")))
    results = {each: run(each, names) for group in groups(framework).values() for each in group}
    module = sys.modules[framework]
    found = {"python": sys.version.split()[0], framework: module.__version__, "results": results}
    Path(file).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
