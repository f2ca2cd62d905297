"""Notebooks of one framework: with devshim's calls, or in the framework's own code.

They are written as JSON, in the form of nbformat: to import that takes longer than to build the page.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from devshim.registry.discovery import title_of
from devshim.tutorial.building.slots import Shown
from devshim.tutorial.page import Cell, Text

if TYPE_CHECKING:
    from devshim.tutorial.record import CellRecord
    from devshim.tutorial.transpiler.cells import Translated

__all__ = ["native", "neutral"]

_COLAB = {"paddle": "'devshim[paddle]'", "mxnet": "'devshim[mxnet]'"}
"""The packages to install in Colab for frameworks that it does not have: an extra would install the others again."""


def neutral(shown: Shown, framework: str) -> str:
    """Return the page as a notebook of one framework, with its outputs; it runs without other files, even in Colab."""
    return _notebook(shown, framework, _setup(framework, shown.page.gpus), {})


def _setup(framework: str, gpus: int) -> str:
    """Return the first cell: it installs devshim, and simulates GPUs where there are too few."""
    install, use = (
        f"%pip install -q {_COLAB.get(framework, 'devshim')}",
        f'import devshim as ds\n\nds.use("{framework}")',
    )
    return f"{install}\n{use}" if not gpus else _SIMULATED.format(install=install, gpus=gpus, use=use)


_SIMULATED = """\
{install}
import os
import shutil
import subprocess

smi = shutil.which("nvidia-smi")
found = subprocess.run([smi, "-L"], capture_output=True, text=True).stdout.count("GPU ") if smi else 0
if found < {gpus}:
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # too few real GPUs for this page: hide them
{use}
if found < {gpus}:
    ds.simulate(gpus={gpus})  # real data, computed on the CPU"""


def native(shown: Shown, framework: str, translated: Translated, records: Mapping[str, CellRecord]) -> str:
    """Return the page as a notebook in a framework's own code.

    Args:
        shown: The page with its records.
        framework: The framework.
        translated: Its cells in its own code.
        records: What the translated cells did when they ran, by the cell's id; their outputs are shown.
    """
    cells = shown.page.cells_of(framework)
    sources = {cell.id: source for cell, source in zip(cells, translated.sources, strict=True)}
    setup = translated.setup.rstrip()
    if translated.needs_devshim:
        setup = f'%pip install -q {_COLAB.get(framework, "devshim")}\n{setup}\n\nds.use("{framework}")'
    return _notebook(shown, framework, setup, sources, records)


def _notebook(
    shown: Shown,
    framework: str,
    setup: str,
    sources: Mapping[str, str],
    records: Mapping[str, CellRecord] | None = None,
) -> str:
    cells = [_code("setup", setup)]
    for number, part in enumerate(shown.page.parts):
        if isinstance(part, Text):
            if part.frameworks is None or framework in part.frameworks:
                cells.append(_cell("markdown", f"text-{number}", part.source))
        elif part.runs_on(framework):
            source = sources.get(part.id, part.source)
            if not source.strip():
                continue
            record = (records or {}).get(part.id) if sources else shown.record_of(part, framework)
            outputs = [] if record is None else [_output(each) for each in record.outputs]
            cells.append(_code(f"code-{number}", source.strip("\n"), outputs, _metadata(part)))
    metadata = {
        "kernelspec": {"name": "python3", "display_name": "Python 3"},
        "language_info": {"name": "python"},
        "accelerator": "GPU",
        "title": f"{shown.page.title} ({title_of(framework)})",
    }
    notebook = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(notebook, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def _cell(kind: str, name: str, source: str) -> dict[str, Any]:
    """Return a cell with a fixed name, so that the same page gives the same file."""
    return {"cell_type": kind, "id": name, "metadata": {}, "source": source.splitlines(keepends=True)}


def _code(
    name: str, source: str, outputs: Sequence[dict[str, Any]] = (), metadata: dict[str, Any] | None = None
) -> dict[str, Any]:
    found = {**_cell("code", name, source), "execution_count": None, "outputs": outputs}
    return {**found, "metadata": metadata or {}}


def _metadata(cell: Cell) -> dict[str, Any]:
    return {"tags": list(cell.tags)} if cell.tags else {}


def _output(output: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recorded output with the fields that a notebook requires, and its text as a list of lines."""
    found = {"metadata": {}, "data": {}, **output} if "data" in output else dict(output)
    if output["output_type"] == "execute_result":
        found.setdefault("execution_count", None)
    if output["output_type"] == "error":
        found.setdefault("traceback", [f"{output['ename']}: {output['evalue']}"])
    if "text" in found:
        found["text"] = _lines(found["text"])
    if "data" in found:
        found["data"] = {kind: value if "json" in kind else _lines(value) for kind, value in found["data"].items()}
    return found


def _lines(text: Any) -> Any:
    return text.splitlines(keepends=True) if isinstance(text, str) else text
