"""A page with its records, as a list of parts to show: text, code, native lines and outputs of each framework."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from devshim.tutorial.building.outputs import Output, parts_of
from devshim.tutorial.page import Cell, Page, Slot, Text
from devshim.tutorial.record import Call, CellRecord, Record
from devshim.tutorial.transpiler.calls import recorded_calls
from devshim.tutorial.transpiler.cells import Cell as SourceCell
from devshim.tutorial.transpiler.cells import Translated, changed_lines, translate_cells
from devshim.tutorial.transpiler.templates import native_code

__all__ = ["Shown", "Tab", "TabGroup"]


@dataclass(frozen=True)
class Tab:
    """The outputs of one framework at one place of the page.

    Attributes:
        framework: Its name.
        source: Its code, if it is not that of all frameworks.
        native: Its own lines for the devshim calls of the code.
        parts: Its outputs.
    """

    framework: str
    source: str | None
    native: tuple[str, ...]
    parts: tuple[Output, ...]


@dataclass(frozen=True)
class TabGroup:
    """A place of the page with code.

    Attributes:
        source: The code of all frameworks; None if each has its own.
        tabs: What the frameworks show, in the order of the page.
    """

    source: str | None
    tabs: tuple[Tab, ...]

    @property
    def common(self) -> tuple[Output, ...] | None:
        """The outputs, if all frameworks show the same; None if they differ."""
        shown = {tab.parts for tab in self.tabs}
        return self.tabs[0].parts if len(shown) == 1 and self.source is not None else None


class Shown:
    """A page with the records that there are.

    Args:
        page: The page.
        records: The records by framework.
    """

    def __init__(self, page: Page, records: Mapping[str, Record]) -> None:
        self.page = page
        self.records: dict[str, Record] = {name: records[name] for name in page.frameworks if name in records}
        self.frameworks: tuple[str, ...] = tuple(self.records) or page.frameworks
        """The frameworks that are shown: those that have a record, in the order of the page; all without any record."""
        self._defined: dict[str, set[str]] = {name: set() for name in self.frameworks}

    def record_of(self, cell: Cell, framework: str) -> CellRecord:
        """Return what a cell did on a framework; an empty record if it did not run there."""
        record = self.records.get(framework)
        return CellRecord("skipped") if record is None else record.cells.get(cell.id, CellRecord("skipped"))

    @cached_property
    def translated(self) -> dict[str, Translated | None]:
        """The cells of each framework in its own code; None if devshim has no templates for it."""
        return {name: self._translate(name) for name in self.frameworks}

    def own_source(self, cell: Cell, framework: str) -> str | None:
        """Return a cell in a framework's own code; None if devshim has no templates for it."""
        translated = self.translated[framework]
        cells = self.page.cells_of(framework)
        return None if translated is None else translated.sources[cells.index(cell)]

    def blocks(self) -> Iterator[Text | TabGroup]:
        """Yield the texts of the page and what its code shows, in order."""
        self._defined = {name: set() for name in self.frameworks}
        for part in self.page.slots():
            if isinstance(part, Text):
                yield part
            else:
                block = self._block(part)
                if block.tabs or block.source is not None:
                    yield block

    def _block(self, slot: Slot) -> TabGroup:
        cells = {name: cell for name in self.frameworks if (cell := slot.cell_for(name)) is not None}
        tabs = [self._tab(cell, name, slot.is_neutral) for name, cell in cells.items()]
        return TabGroup(slot.cells[0].source if slot.is_neutral else None, tuple(tabs))

    def _tab(self, cell: Cell, framework: str, is_neutral: bool) -> Tab:
        record = self.record_of(cell, framework)
        native = tuple(self._native(cell, framework, record))
        return Tab(framework, None if is_neutral else cell.source, native, parts_of(record.outputs))

    def _native(self, cell: Cell, framework: str, record: CellRecord) -> list[str]:
        """Return a cell's native lines: with the author's names where it can be rewritten, else as `explain` says.

        Functions that they use are defined where they are used first.
        """
        own = self.own_source(cell, framework)
        found = [] if own is None else changed_lines(cell.source, own)
        if not found:
            return list(dict.fromkeys(call.text for call in record.calls if call.text))
        return [*self._definitions(framework, found), *found]

    def _definitions(self, framework: str, lines: list[str]) -> list[str]:
        translated, defined = self.translated[framework], self._defined[framework]
        assert translated is not None
        new = [name for name in translated.functions_in("\n".join(lines)) if name not in defined]
        defined.update(new)
        return [line for name in new for line in [*translated.functions[name].split("\n"), "", ""]]

    def _translate(self, framework: str) -> Translated | None:
        native = native_code(framework)
        if native is None:
            return None
        cells = self.page.cells_of(framework)
        calls: dict[str, list[Call]] = {cell.id: [] for cell in cells}
        for cell in cells:
            for call in self.record_of(cell, framework).calls:
                calls.get(call.cell or cell.id, []).append(call)  # a function may be defined in another cell
        sources = [self._source_cell(cell, framework, calls[cell.id]) for cell in cells]
        return translate_cells(sources, native)

    def _source_cell(self, cell: Cell, framework: str, calls: list[Call]) -> SourceCell:
        raised = self.record_of(cell, framework).status == "raised"
        return SourceCell(cell.source, recorded_calls(cell.source, calls), raised)
