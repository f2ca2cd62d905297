"""The record of one framework's run of one page, as JSON: statuses, outputs, compared values and devshim calls.

There is a separate record file for each framework (`path_of`), so a machine that has only PyTorch can refresh the
record of PyTorch, and leave the others.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from devshim.errors import DevshimError

if TYPE_CHECKING:
    from pathlib import Path

    from devshim.tutorial.page import Page

__all__ = ["FORMAT", "MIME", "Call", "CellRecord", "Record", "load", "load_all", "path_of"]

FORMAT = 1
"""The version of the file format."""
MIME = "application/vnd.devshim.cell+json"
"""The type of the extra output of each cell, which carries what the kernel recorded; records do not contain it."""


@dataclass(frozen=True)
class Call:
    """A devshim call that a cell made.

    Attributes:
        call: Its name, such as ``place``; empty for a line that does not belong to one call.
        text: The framework's own line for it, as `devshim.explain` prints it: the names of real GPUs.
        span: Its place in the cell's source: line, end line, column, end column. Lines count from 1, columns in
            UTF-8 bytes from 0, as in `ast`. Only the line on Python 3.10; None if no line of the cell made the call.
        device: The device it is about, such as ``gpu:1``.
        native: The framework's text for that device, such as ``"cuda:1"``.
        index: The index of that device.
        template: The adapter's template, of which `text` is made; None if the framework has no line for the call.
        names: The source text of the template's names, such as ``x``, ``args``, ``dtype``, ``0`` and ``1``.
        times: How often the cell made this call at this place, with this line.
        cell: The id of the cell that `span` is in, if it is another one: that of a function's definition.
    """

    call: str
    text: str
    span: tuple[int, ...] | None = None
    device: str | None = None
    native: str | None = None
    index: int | None = None
    template: str | None = None
    names: dict[str, str] = field(default_factory=dict)
    times: int = 1
    cell: str | None = None


@dataclass(frozen=True)
class CellRecord:
    """The record of one cell.

    Attributes:
        status: ``ok``; ``raised``, an error that the cell's tags allow; ``failed``; or ``skipped``, after a failure.
        seconds: How long it ran.
        outputs: Its outputs in the format of nbformat 4, without the kernel's extra output.
        value: The value of its last expression, as `devshim.tutorial.values` describes it; None if it has none.
        names: The tensors that it assigned, by variable.
        calls: The devshim calls it made, in order; a call in a loop is one entry if its line is the same each time.
    """

    status: str
    seconds: float = 0.0
    outputs: tuple[dict[str, Any], ...] = ()
    value: dict[str, Any] | None = None
    names: dict[str, dict[str, Any]] = field(default_factory=dict)
    calls: tuple[Call, ...] = ()

    @property
    def stdout(self) -> str:
        """The text that it printed to standard output."""
        found = [each for each in self.outputs if each["output_type"] == "stream" and each["name"] == "stdout"]
        return "".join(each["text"] for each in found)

    @property
    def size(self) -> int:
        """The number of characters of its outputs; those of pictures are in base 64."""
        texts = [text for each in self.outputs for text in (each.get("text"), *each.get("data", {}).values())]
        return sum(len(text) for text in texts if isinstance(text, str))

    @property
    def error(self) -> str | None:
        """The error that it raised, as ``type: text``; None without one."""
        found = [each for each in self.outputs if each["output_type"] == "error"]
        return f"{found[-1]['ename']}: {found[-1]['evalue']}" if found else None


@dataclass(frozen=True)
class Record:
    """One framework's run of one page.

    Attributes:
        framework: Its canonical name, such as ``torch``.
        title: Its name in its official spelling.
        version: Its version.
        devshim: The version of devshim.
        python: The version of Python.
        gpus: How many GPUs there were.
        simulated: True if they were simulated.
        code: The digest of the page's code for this framework (`devshim.tutorial.page.Page.digest`).
        seconds: How long the whole run took, with the start of the framework.
        problem: Why the run ended early, if no cell's output shows it: the framework does not start, the kernel died.
        cells: What each cell did, by the cell's id, in order.
    """

    framework: str
    title: str
    version: str
    devshim: str
    python: str
    gpus: int
    simulated: bool
    code: str
    seconds: float = 0.0
    problem: str | None = None
    cells: dict[str, CellRecord] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """True if the run is complete, and no cell failed."""
        return self.problem is None and all(cell.status in ("ok", "raised") for cell in self.cells.values())

    def is_of(self, page: Page) -> bool:
        """Return True if the record is one of the page's current code."""
        return self.code == page.digest(self.framework) and set(self.cells) == {
            cell.id for cell in page.cells_of(self.framework)
        }

    def to_json(self) -> str:
        """Return the record as JSON, the same text for the same record; each cell is a line."""
        facts = {"format": FORMAT, **asdict(self)}
        found = facts.pop("cells").items()
        cells = [f"{json.dumps(key)}: {json.dumps(each, ensure_ascii=False)}" for key, each in found]
        head = json.dumps(facts, indent=1, ensure_ascii=False).removesuffix("\n}")
        return head + ',\n "cells": {\n  ' + ",\n  ".join(cells) + "\n }\n}\n"

    def save(self, path: Path) -> None:
        """Write the record to a file, and create its folder.

        Raises:
            DevshimError: The file cannot be written.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.to_json(), encoding="utf-8")
        except OSError as error:
            msg = f"{path} cannot be written: {error.strerror}"
            raise DevshimError(msg, "choose another folder with --records") from error

    @classmethod
    def from_json(cls, text: str) -> Record:
        """Return the record of a JSON text.

        Raises:
            ValueError: The text is not a record of this format.
        """
        try:
            read = json.loads(text)
            if read.pop("format", None) != FORMAT:
                msg = "it has another format"
                raise ValueError(msg)
            cells = {name: _cell(each) for name, each in read.pop("cells").items()}
            return cls(**{each.name: read[each.name] for each in fields(cls) if each.name in read}, cells=cells)
        except (TypeError, KeyError, AttributeError) as error:
            msg = f"it is not a record: {type(error).__name__}: {error}"
            raise ValueError(msg) from error


def _cell(read: dict[str, Any]) -> CellRecord:
    calls = tuple(Call(**{**each, "span": _span(each.get("span"))}) for each in read.pop("calls", ()))
    return CellRecord(**{**read, "outputs": tuple(read.get("outputs", ()))}, calls=calls)


def _span(read: list[int] | None) -> tuple[int, ...] | None:
    return None if read is None else tuple(read)


def path_of(page: Path, framework: str, folder: Path | None = None) -> Path:
    """Return the file of a record: ``NAME.records/FRAMEWORK.json`` beside the page, or below another folder."""
    return (folder or page.parent) / f"{page.stem}.records" / f"{framework}.json"


def load(path: Path) -> Record | None:
    """Read a record; None if there is no such file.

    Raises:
        DevshimError: The file cannot be read, or is not a record.
    """
    try:
        return Record.from_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        msg = f"{path} cannot be read: {error}"
        raise DevshimError(msg, "remove it, and write it again with: devshim tutorial run") from error


def load_all(page: Page, folder: Path | None = None) -> dict[str, Record]:
    """Return the records of a page's frameworks that exist, in the order of the page."""
    found = {name: load(path_of(page.path, name, folder)) for name in page.frameworks}
    return {name: record for name, record in found.items() if record is not None}
