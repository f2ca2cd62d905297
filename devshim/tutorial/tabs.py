"""A script's native code as tabs of *Dive into Deep Learning*: one block for each framework, marked ``#@tab``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from sys import stderr

from devshim.errors import DevshimError
from devshim.registry import current
from devshim.runtime import queries
from devshim.simulation.simulate import simulate
from devshim.tutorial.front_matter import library
from devshim.tutorial.transpiler.calls import Ran
from devshim.tutorial.transpiler.recording import run_cells

__all__ = ["FRAMEWORKS", "tabs"]

FRAMEWORKS = ("mxnet", "torch", "tensorflow", "paddle", "jax")
"""The frameworks of the book, in its order."""
_NAMES = {"torch": "pytorch"}
_MAGIC = re.compile(r"^(\s*)[%!].*$", re.MULTILINE)


def tabs(
    path: Path, frameworks: Sequence[str] = FRAMEWORKS, backend: str = "numpy", gpus: int = 2
) -> tuple[str, list[str]]:
    """Return a script as a page of the book, and a line for each name of devshim that was not translated.

    Args:
        path: A Python script; ``# %%`` divides it into cells.
        frameworks: The frameworks that get a tab.
        backend: The framework on which the script runs here, to see what its calls do.
        gpus: How many GPUs are simulated while it runs.

    Raises:
        DevshimError: The script cannot be read, or raises an error.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8 text'}"
        raise DevshimError(msg, "give a Python script: devshim tabs script.py") from error
    cells = [cell for cell in library("jupytext").reads(text, fmt="py:percent").cells if cell.cell_type != "raw"]
    code = [cell.source for cell in cells if cell.cell_type == "code"]
    current.use(backend)
    if queries.device_count() < gpus:
        simulate(gpus)
    with redirect_stdout(stderr):
        calls = run_cells([_MAGIC.sub(r"\1pass", source) for source in code], path)
    blocks, left = _blocks(code, calls, frameworks)
    setup, *others = blocks
    rest = iter(others)
    found = [next(rest) if cell.cell_type == "code" else cell.source for cell in cells]
    first = next((number for number, cell in enumerate(cells) if cell.cell_type == "code"), len(cells))
    found.insert(first, setup)
    return "\n\n".join(each for each in found if each.strip()) + "\n", [f"{path}: {each}" for each in left]


def _blocks(
    code: Sequence[str], calls: Sequence[Sequence[Ran]], frameworks: Sequence[str]
) -> tuple[list[str], list[str]]:
    from devshim.tutorial.transpiler.cells import Cell, translate_cells
    from devshim.tutorial.transpiler.templates import native_code

    sources: dict[str, list[str]] = {}
    left: dict[str, list[str]] = {}
    for name in frameworks:
        native = native_code(name)
        if native is None:
            msg = f"there is no native code for {name}"
            raise DevshimError(msg, f"choose from: {', '.join(FRAMEWORKS)}")
        found = translate_cells([Cell(source, ran) for source, ran in zip(code, calls, strict=True)], native)
        sources[name] = [found.setup, *found.sources]
        for number, cell in enumerate(found.left, 1):
            for each in cell:
                left.setdefault(f"cell {number}, line {each.line}: {each.name} {each.reason}", []).append(name)
    blocks = [_tabs_of({name: sources[name][i].strip() for name in frameworks}) for i in range(len(code) + 1)]
    return blocks, [f"{text} ({', '.join(names)})" for text, names in left.items()]


def _tabs_of(sources: dict[str, str]) -> str:
    """Return the blocks of one cell: one for all frameworks if their code is the same."""
    if not any(sources.values()):
        return ""
    if len(set(sources.values())) == 1:
        return _block("all", next(iter(sources.values())))
    return "\n\n".join(_block(_NAMES.get(name, name), source) for name, source in sources.items() if source)


def _block(tab: str, source: str) -> str:
    return f"```{{.python .input}}\n#@tab {tab}\n{source}\n```"
