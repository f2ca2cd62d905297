"""Notebooks of one framework: with devshim's calls, or in the framework's own words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from devshim.registry.discovery import title_of
from devshim.tutorial.building.slots import Shown
from devshim.tutorial.front_matter import library
from devshim.tutorial.page import Cell, Text

if TYPE_CHECKING:
    from devshim.tutorial.own_words.cells import Translated
    from devshim.tutorial.record import CellRecord

__all__ = ["neutral", "own_words"]

_COLAB = {"paddle": "'devshim[paddle]'", "mxnet": "'devshim[mxnet]'"}
"""The packages to install in Colab for frameworks that it does not have: an extra would install the others again."""


def neutral(shown: Shown, framework: str) -> str:
    """Return the page as a notebook of one framework, with its outputs; it runs alone, also in Colab."""
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


def own_words(shown: Shown, framework: str, translated: Translated, records: Mapping[str, CellRecord]) -> str:
    """Return the page as a notebook in a framework's own words.

    Args:
        shown: The page with its records.
        framework: The framework.
        translated: Its cells in its own words.
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
    nbformat = library("nbformat")
    v4 = nbformat.v4
    cells = [_cell(v4.new_code_cell(setup), "setup")]
    for number, part in enumerate(shown.page.parts):
        if isinstance(part, Text):
            if part.frameworks is None or framework in part.frameworks:
                cells.append(_cell(v4.new_markdown_cell(part.source), f"text-{number}"))
        elif part.runs_on(framework):
            source = sources.get(part.id, part.source)
            if not source.strip():
                continue
            record = (records or {}).get(part.id) if sources else shown.record_of(part, framework)
            cell = _cell(v4.new_code_cell(source.strip("\n"), metadata=_metadata(part)), f"code-{number}")
            cell.outputs = [] if record is None else [nbformat.from_dict(_counted(each)) for each in record.outputs]
            cells.append(cell)
    metadata = {
        "kernelspec": {"name": "python3", "display_name": "Python 3"},
        "language_info": {"name": "python"},
        "accelerator": "GPU",
        "title": f"{shown.page.title} ({title_of(framework)})",
    }
    text: str = nbformat.writes(v4.new_notebook(cells=cells, metadata=metadata))
    return text + "\n"


def _cell(cell: Any, name: str) -> Any:
    """Return a cell with a fixed name, so that the same page gives the same file."""
    cell["id"] = name
    return cell


def _metadata(cell: Cell) -> dict[str, Any]:
    return {"tags": list(cell.tags)} if cell.tags else {}


def _counted(output: Mapping[str, Any]) -> dict[str, Any]:
    found = {"metadata": {}, "data": {}, **output} if "data" in output else dict(output)
    if output["output_type"] == "execute_result":
        found.setdefault("execution_count", None)
    if output["output_type"] == "error":
        found.setdefault("traceback", [f"{output['ename']}: {output['evalue']}"])
    return found
