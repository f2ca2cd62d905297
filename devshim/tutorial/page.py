"""A tutorial page as data: text, and code cells that run on all of its frameworks or on some.

`read` reads a MyST notebook (``.md``), a percent script (``.py``) or a notebook (``.ipynb``). Its front matter names
the frameworks::

    ---
    devshim:
      frameworks: [torch, jax, numpy]
      gpus: 2
    ---

A code cell may have ``frameworks: torch, jax`` (it runs only there), and the tags ``differs`` (its results may differ
between frameworks) and ``raises-exception`` (it raises an error).
"""

from __future__ import annotations

import hashlib
import json
import re
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from devshim._version import __version__
from devshim.tutorial import front_matter
from devshim.tutorial.front_matter import FORMATS, page_error
from devshim.tutorial.support import cache_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

__all__ = ["DIFFERS", "RAISES", "Cell", "Page", "Slot", "Text", "parse", "read"]

DIFFERS = "differs"
"""The tag of a cell whose results may differ between frameworks."""
RAISES = "raises-exception"
"""The tag of a cell that raises an error, as in Jupyter."""


@dataclass(frozen=True)
class Text:
    """Markdown between code cells.

    Attributes:
        source: The text, as the author wrote it.
        line: The line of the file where it starts, counted from 1; None in an ipynb file.
        frameworks: The frameworks it is for; None for all.
    """

    source: str
    line: int | None = None
    frameworks: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Cell:
    """A code cell.

    Attributes:
        id: Its name in records: the same as long as its source and its frameworks are the same.
        number: Its position among the page's code cells, counted from 1.
        source: Its code, without a newline at the end.
        line: The line of the file where its code starts, counted from 1; None in an ipynb file.
        tags: Its tags, such as ``differs``.
        frameworks: The frameworks it runs on; None for all of the page's.
    """

    id: str
    number: int
    source: str
    line: int | None = None
    tags: tuple[str, ...] = ()
    frameworks: tuple[str, ...] | None = None

    def runs_on(self, framework: str) -> bool:
        """Return True if the cell runs on a framework of the page."""
        return self.frameworks is None or framework in self.frameworks

    @property
    def may_differ(self) -> bool:
        """True if its results may differ between frameworks."""
        return DIFFERS in self.tags

    @property
    def may_raise(self) -> bool:
        """True if it may raise an error."""
        return RAISES in self.tags


@dataclass(frozen=True)
class Slot:
    """Code cells that take one place on the page: one neutral cell, or neighbours of disjoint sets of frameworks."""

    cells: tuple[Cell, ...]

    @property
    def is_neutral(self) -> bool:
        """True if its code is the same on every framework."""
        return self.cells[0].frameworks is None

    def cell_for(self, framework: str) -> Cell | None:
        """Return the cell that a framework runs here; None if it runs none."""
        return next((cell for cell in self.cells if cell.runs_on(framework)), None)


@dataclass(frozen=True)
class Page:
    """A tutorial page.

    Attributes:
        path: The file it was read from.
        title: The front matter's title, or the first heading, or the file's name.
        frameworks: The canonical names of its frameworks, in the author's order.
        gpus: How many GPUs it needs; they are simulated unless the page requests otherwise. 0: none.
        parts: Its texts and code cells, in order.
        metadata: The rest of the front matter.
    """

    path: Path
    title: str
    frameworks: tuple[str, ...]
    gpus: int
    parts: tuple[Text | Cell, ...]
    metadata: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """All code cells, in order."""
        return tuple(part for part in self.parts if isinstance(part, Cell))

    def cells_of(self, framework: str) -> tuple[Cell, ...]:
        """Return the code cells that run on a framework, in order."""
        return tuple(cell for cell in self.cells if cell.runs_on(framework))

    def slots(self) -> Iterator[Text | Slot]:
        """Yield the texts and slots, in order."""
        group: list[Cell] = []
        for part in self.parts:
            if group and not (isinstance(part, Cell) and _disjoint(part, group)):
                yield Slot(tuple(group))
                group = []
            if isinstance(part, Text):
                yield part
            else:
                group.append(part)
        if group:
            yield Slot(tuple(group))

    def where(self, cell: Cell) -> str:
        """Return the place of a cell for a reader: ``page.md:12``, or ``page.ipynb, cell 3``."""
        return f"{self.path}:{cell.line}" if cell.line is not None else f"{self.path}, cell {cell.number}"

    def digest(self, framework: str) -> str:
        """Return a digest of everything that a run on a framework depends on, except the versions."""
        cells = [[cell.source, sorted(cell.tags)] for cell in self.cells_of(framework)]
        text = json.dumps([framework, self.gpus, cells])
        return hashlib.sha256(text.encode()).hexdigest()[:24]


def _disjoint(cell: Cell, group: Sequence[Cell]) -> bool:
    taken = [each.frameworks for each in group]
    if cell.frameworks is None or None in taken:
        return False
    return not set(cell.frameworks) & {name for names in taken for name in names or ()}


def read(path: Path) -> Page:
    """Read a page from a file.

    Raises:
        DevshimError: The file cannot be read, or its front matter or a cell's options are wrong; the error names the
            file and the line.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")  # editors on Windows begin a file with a byte order mark
    except UnicodeDecodeError as error:
        raise page_error(path, None, "the page is not UTF-8 text", "save the file with the encoding UTF-8") from error
    except OSError as error:
        hint = f"devshim tutorial new {path}" if isinstance(error, FileNotFoundError) else None
        raise page_error(path, None, f"the page cannot be read: {error.strerror}", hint) from error
    known = (
        cache_folder() / "pages" / f"{hashlib.sha256(f'{__version__} {path.suffix} {text}'.encode()).hexdigest()}.json"
    )
    found = _find_parsed(known, path)
    if found is None:
        found = parse(path, text)
        with suppress(OSError, TypeError):  # front matter may have values that JSON has not, such as dates
            known.parent.mkdir(parents=True, exist_ok=True)
            known.write_text(_as_json(found), encoding="utf-8")
    return found


def _as_json(page: Page) -> str:
    parts = [{"is_cell": isinstance(part, Cell), **asdict(part)} for part in page.parts]
    return json.dumps(
        [page.title if page.title != page.path.stem else None, page.frameworks, page.gpus, parts, page.metadata]
    )


def _find_parsed(known: Path, path: Path) -> Page | None:
    """Return a page that was parsed before: importing the parser takes up to three seconds."""
    try:
        title, frameworks, gpus, parts, metadata = json.loads(known.read_text(encoding="utf-8"))
        made = tuple(_part(**part) for part in parts)
    except (OSError, ValueError, TypeError):
        return None
    return Page(path, title or path.stem, tuple(frameworks), gpus, made, metadata)


def _part(is_cell: bool, frameworks: list[str] | None, tags: Sequence[str] = (), **rest: Any) -> Text | Cell:
    names = None if frameworks is None else tuple(frameworks)
    return Cell(frameworks=names, tags=tuple(tags), **rest) if is_cell else Text(frameworks=names, **rest)


def parse(path: Path, text: str) -> Page:
    """Return the page that a file of this name and text has; see `read`."""
    notebook = _notebook(path, text)
    settings = front_matter.parse(path, text, notebook)
    parts: list[Text | Cell] = []
    lines = _Lines("" if path.suffix == ".ipynb" else text)
    ids: dict[str, int] = {}
    number = 0
    for item in notebook.cells:
        if item.cell_type == "raw":
            continue
        line = lines.find(item.source)
        number += item.cell_type == "code"
        options = front_matter.options(path, line, number, item, settings.frameworks)
        if item.cell_type == "markdown":
            parts.append(Text(item.source, line, options.frameworks))
        elif item.source.strip():
            parts.append(Cell(_id(item.source, options.frameworks, ids), number, item.source, line, *options))
    if not any(isinstance(part, Cell) for part in parts):
        raise page_error(path, None, "the page has no code cells", front_matter.CELL_HINT[path.suffix])
    title = settings.title or _heading(parts) or path.stem
    return Page(path, title, settings.frameworks, settings.gpus, tuple(parts), settings.others)


def _notebook(path: Path, text: str) -> Any:
    if path.suffix not in FORMATS:
        hint = "save it as .md (MyST), .py (percent format) or .ipynb"
        raise page_error(path, None, f"{path.suffix or 'a file without a suffix'} is not a format of pages", hint)
    jupytext = front_matter.library("jupytext")
    try:
        return jupytext.reads(text, fmt=FORMATS[path.suffix])
    except Exception as error:  # any error of the YAML, JSON or Markdown parser
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        found = re.search(r"line (\d+)", str(error))
        raise page_error(path, int(found[1]) + 1 if found else None, f"the page cannot be parsed: {first}") from error


class _Lines:
    """The lines of a file, in which the sources of cells are found again, in order."""

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines()
        self._at = 0

    def find(self, source: str) -> int | None:
        """Return the line where a source starts, counted from 1, and go on from its end; None if it is not found."""
        wanted = source.splitlines()
        for length in (len(wanted), 1):  # magics of a percent script are comments in the file
            for start in range(self._at, len(self._lines) - length + 1 if wanted else 0):
                if all(map(_is_written_as, wanted[:length], self._lines[start : start + length])):
                    self._at = start + length
                    return start + 1
        return None


def _is_written_as(source: str, line: str) -> bool:
    """Return True if a line of a file is this line of a cell; percent scripts have text and magics as comments."""
    return line.rstrip() in (source.rstrip(), f"# {source}".rstrip(), f"#{source}".rstrip())


def _id(source: str, frameworks: tuple[str, ...] | None, known: dict[str, int]) -> str:
    name = hashlib.sha256(json.dumps([source, frameworks]).encode()).hexdigest()[:10]
    known[name] = known.get(name, 0) + 1
    return name if known[name] == 1 else f"{name}-{known[name]}"


def _heading(parts: Sequence[Text | Cell]) -> str | None:
    for part in parts:
        found = re.search(r"^# +(.+?)\s*#*$", part.source, re.MULTILINE) if isinstance(part, Text) else None
        if found:
            return found[1]
    return None
