"""The front matter of a page and the options of its cells, checked: each error names the file and the line."""

from __future__ import annotations

import difflib
import re
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from devshim.errors import BackendNotFoundError, DevshimError
from devshim.registry import discovery

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["CELL_HINT", "FORMATS", "Options", "Settings", "library", "names_of", "options", "page_error", "parse"]

FORMATS = {".md": "md:myst", ".py": "py:percent", ".ipynb": "ipynb"}
"""The suffixes of pages, with jupytext's name of each format."""
CELL_HINT = {
    ".md": "start a code cell with ```{code-cell} on a separate line",
    ".py": "start a code cell with # %% on a separate line",
    ".ipynb": "add a code cell",
}
_TAGS = ("differs", "raises-exception")
_OPTIONS = ("frameworks", "tags")
_EXAMPLE = "frameworks: [torch, jax, numpy]"
_MAX_GPUS = 64


class Settings(NamedTuple):
    """The front matter: the frameworks and GPUs of the page, its title, and the rest."""

    frameworks: tuple[str, ...]
    gpus: int
    title: str | None
    others: dict[str, Any]


class Options(NamedTuple):
    """The options of a cell."""

    tags: tuple[str, ...]
    frameworks: tuple[str, ...] | None


def library(name: str) -> Any:
    """Import a package of the extra ``devshim[tutorial]``.

    Raises:
        DevshimError: It is not installed.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        msg = f"devshim tutorial needs {error.name}, which is not installed"
        raise DevshimError(msg, "pip install 'devshim[tutorial]'") from error


def page_error(path: Path, line: int | None, problem: str, hint: str | None = None) -> DevshimError:
    """Return the error for a page: its file, its line if it is known, and what is wrong."""
    return DevshimError(f"{path}{'' if line is None else f':{line}'}: {problem}", hint)


def parse(path: Path, text: str, notebook: Any) -> Settings:
    """Return the checked front matter of a page, which jupytext has read as a notebook."""
    found = {**_raw_header(path, notebook), **notebook.metadata}
    if "devshim" not in found:
        if not text.strip():
            raise page_error(path, None, "the page is empty", f"remove it, and write one: devshim tutorial new {path}")
        raise page_error(path, 1, "the front matter has no devshim entry", f"add: devshim: {{{_EXAMPLE}, gpus: 2}}")
    ours = found["devshim"]
    if not isinstance(ours, dict):
        hint = f"write: devshim: {{{_EXAMPLE}, gpus: 2}}"
        raise page_error(path, _line_of(text, "devshim"), f"devshim must be a mapping, not {ours!r}", hint)
    for key in ours:
        if key not in ("frameworks", "gpus"):
            close = difflib.get_close_matches(str(key), ("frameworks", "gpus"), 1)
            hint = f"did you mean {close[0]}?" if close else "the entries are frameworks and gpus"
            raise page_error(path, _line_of(text, str(key)), f"devshim has no entry {key!r}", hint)
    frameworks = names_of(path, _line_of(text, "frameworks"), ours.get("frameworks"))
    title = found.get("title")
    ignored = ("devshim", "jupytext", "kernelspec", "title")
    others = {key: value for key, value in found.items() if key not in ignored}
    return Settings(frameworks, _gpus(path, text, ours.get("gpus", 2)), None if title is None else str(title), others)


def _raw_header(path: Path, notebook: Any) -> dict[str, Any]:
    """Return the YAML header that jupytext leaves in a raw cell at the start of a percent script."""
    cell = notebook.cells[0] if notebook.cells else None
    found = re.fullmatch(r"---\n(.*?)\n---\s*", cell.source, re.DOTALL) if cell and cell.cell_type == "raw" else None
    if found is None:
        return {}
    yaml = library("yaml")
    try:
        header = yaml.safe_load(found[1])
    except yaml.YAMLError as error:
        raise page_error(path, 1, f"the front matter is not YAML: {str(error).splitlines()[0]}") from error
    return header if isinstance(header, dict) else {}


def _line_of(text: str, key: str) -> int | None:
    """Return the first line of the front matter with a key, counted from 1."""
    pattern = re.compile(rf"[\s#{{,\"']*\b{re.escape(key)}\b[\"']?\s*:|.*[{{,]\s*{re.escape(key)}\s*:")
    return next((i for i, line in enumerate(text.splitlines(), 1) if pattern.match(line)), None)


def _gpus(path: Path, text: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_GPUS:
        msg = f"gpus must be a number from 0 to {_MAX_GPUS}, not {value!r}"
        raise page_error(path, _line_of(text, "gpus"), msg, "write, for example: gpus: 2")
    return value


def names_of(path: Path, line: int | None, value: object) -> tuple[str, ...]:
    """Return the canonical names of the frameworks that a page or a cell names, as a list or with commas."""
    names = [each.strip() for each in value.split(",")] if isinstance(value, str) else value
    if not isinstance(names, list) or not names or not all(isinstance(each, str) and each for each in names):
        what = "frameworks is missing" if value is None else f"frameworks must list names, not {value!r}"
        raise page_error(path, line, what, f"write, for example: {_EXAMPLE}")
    try:
        found = [discovery.canonical_name(each) for each in names]
    except BackendNotFoundError as error:
        raise page_error(path, line, error.problem, error.hint) from error
    for name in found:
        if found.count(name) > 1:
            raise page_error(path, line, f"frameworks names {name} twice", "remove one of them")
    return tuple(found)


def options(path: Path, line: int | None, number: int, item: Any, frameworks: Sequence[str]) -> Options:
    """Return the checked options of a cell of a notebook; `frameworks` are those of the page."""
    about = "" if line is not None or item.cell_type != "code" else f"cell {number}: "
    for key in item.metadata:
        close = difflib.get_close_matches(str(key), _OPTIONS, 1, 0.75)
        if close and key not in (*_OPTIONS, "framework"):
            raise page_error(path, line, f"{about}the option {key!r} has no meaning here", f"did you mean {close[0]}?")
    tags = item.metadata.get("tags", [])
    tags = [each.strip() for each in tags.split(",")] if isinstance(tags, str) else tags
    if not isinstance(tags, list) or not all(isinstance(each, str) for each in tags):
        raise page_error(
            path, line, f"{about}tags must list words, not {tags!r}", "write, for example: tags: [differs]"
        )
    for tag in tags:
        close = difflib.get_close_matches(tag, _TAGS, 1, 0.75)
        if close and tag not in _TAGS:
            raise page_error(path, line, f"{about}the tag {tag!r} has no meaning here", f"did you mean {close[0]}?")
    named = item.metadata.get("frameworks", item.metadata.get("framework"))
    if named is None:
        return Options(tuple(tags), None)
    names = names_of(path, line, named)
    for name in names:
        if name not in frameworks:
            msg = f"{about}the cell is for {name}, which is not among the page's frameworks"
            raise page_error(path, line, msg, f"add {name} to frameworks in the front matter")
    return Options(tuple(tags), names)
