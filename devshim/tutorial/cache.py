"""Runs that do not need to be repeated, in a jupyter-cache of the user.

The key is the code, the options of its cells, the GPUs, and the versions of devshim, the framework and Python. The
record of a run beside its page is looked at first.
"""

from __future__ import annotations

import platform
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from devshim._version import __version__
from devshim.tutorial import record as records
from devshim.tutorial.front_matter import library
from devshim.tutorial.outputs import cell_record, record_of
from devshim.tutorial.support import cache_folder

if TYPE_CHECKING:
    from pathlib import Path

    from devshim.tutorial.environments import Environment
    from devshim.tutorial.page import Page
    from devshim.tutorial.record import Record

__all__ = ["find", "notebook_of", "store"]

_NAME = "devshim"


def notebook_of(page: Page, environment: Environment, real: bool) -> Any:
    """Return the notebook that one framework runs; its kernelspec has everything besides the code that matters."""
    nbformat = library("nbformat")
    versions = (
        f"{environment.framework} {environment.version}, devshim {__version__}, Python {environment.python_version}"
    )
    cards = f"{platform.node()}: {page.gpus} GPUs" if real else f"{page.gpus} simulated GPUs"
    spec = {
        "name": f"devshim-{environment.framework}",
        "display_name": f"{versions}, {cards}, records {records.FORMAT}",
    }
    notebook = nbformat.v4.new_notebook(metadata={"kernelspec": spec})
    for cell in page.cells_of(environment.framework):
        tags = {"tags": list(cell.tags)} if cell.tags else {}
        notebook.cells.append(nbformat.v4.new_code_cell(cell.source, metadata=tags))
    return notebook


def find(page: Page, environment: Environment, real: bool, folder: Path | None) -> Record | None:
    """Return the record of an earlier run with the same key, or None."""
    beside = _beside(page, environment, real, folder)
    return beside if beside is not None else _find_cached(page, environment, real)


def _beside(page: Page, environment: Environment, real: bool, folder: Path | None) -> Record | None:
    """Return the record beside the page, if it is of these versions; real GPUs are another machine's, perhaps."""
    found = records.load(records.path_of(page.path, environment.framework, folder))
    if found is None or real or not found.ok or not found.is_of(page) or (found.gpus and not found.simulated):
        return None
    versions = (found.version, found.devshim, found.python)
    return found if versions == (environment.version, __version__, environment.python_version) else None


def _cache() -> Any:
    return library("jupyter_cache").get_cache(cache_folder() / "runs")


def _find_cached(page: Page, environment: Environment, real: bool) -> Record | None:
    try:
        cache = _cache()
        found = cache.match_cache_notebook(notebook_of(page, environment, real))
        notebook = cache.get_cache_bundle(found.pk).nb
    except Exception:
        # KeyError for a run that is not stored; the database's errors if another process is writing to it
        return None
    cells = page.cells_of(environment.framework)
    done = [cell_record(cell, ran.outputs, cells) for cell, ran in zip(cells, notebook.cells, strict=True)]
    return record_of(page, environment.framework, found.data[_NAME], done)


def store(page: Page, notebook: Any, facts: dict[str, Any]) -> None:
    """Store an executed notebook, with the facts of its record; a cache that cannot be written is left unchanged."""
    bundles = library("jupyter_cache.base")
    bundle = bundles.CacheBundleIn(notebook, str(page.path), data={_NAME: facts})
    with suppress(Exception):  # the errors of SQLite and SQLAlchemy: the run itself was good, and its record is saved
        _cache().cache_notebook_bundle(bundle, check_validity=False, overwrite=True)
