"""The outputs of one cell on several frameworks, side by side, and whether they agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from devshim import _html
from devshim.registry.discovery import title_of
from devshim.tutorial.comparing import differences
from devshim.tutorial.outputs import cell_record
from devshim.tutorial.page import Cell

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devshim.jupyter.kernels import Shown
    from devshim.tutorial.record import CellRecord

__all__ = ["Sides", "sides_of"]

GOOD, BAD = "#34a853", "#e2574c"


@dataclass(frozen=True)
class Sides:
    """A cell's results on each framework, which a notebook displays in columns, and a terminal one below the other.

    Attributes:
        records: What the cell did, by framework.
        problems: Why it did not run on a framework.
    """

    records: Mapping[str, CellRecord]
    problems: Mapping[str, str]

    @property
    def groups(self) -> list[list[str]]:
        """The frameworks that agree with each other, the largest group first."""
        found: list[list[str]] = []
        for name, record in self.records.items():
            mine = next((group for group in found if not differences(self.records[group[0]], record)), None)
            if mine is None:
                found.append([name])
            else:
                mine.append(name)
        return sorted(found, key=len, reverse=True)

    def verdict(self) -> tuple[list[str], bool]:
        """Return whether the frameworks agree or how they differ, in lines, and True if all agree."""
        groups = self.groups
        said = [f"{title_of(name)} did not run this cell" for name in self.problems]
        if len(groups) == 1 and len(groups[0]) > 1:
            said.insert(0, f"{len(groups[0])} agree")
        elif len(groups) > 1:
            first, *others = groups
            said.insert(0, f"{' and '.join(map(title_of, first))} agree" if len(first) > 1 else "they differ")
            for name in (name for group in others for name in group):
                how = "; ".join(differences(self.records[first[0]], self.records[name]))
                said.append(f"{title_of(name)} differs from {title_of(first[0])}: {how}")
        return said, len(groups) < 2 and not self.problems

    def __repr__(self) -> str:
        parts = []
        for name, record in self.records.items():
            lines = [f"    {line}" for line in _lines(record)]
            shown = "".join(_plain(each) for each in record.outputs).rstrip("\n")
            parts.append("\n".join([f"--- {title_of(name)}", *lines, *([shown] if shown else [])]))
        parts += [f"--- {title_of(name)}\n{problem}" for name, problem in self.problems.items()]
        return "\n".join([*parts, "---", *self.verdict()[0]])

    def _repr_html_(self) -> str:
        columns: list[tuple[object, list[object]]] = []
        for name, record in self.records.items():
            lines = _lines(record)
            native: list[object] = [_html.note(_html.code("\n".join(lines)), "rgba(128,128,128,.6)")] if lines else []
            columns.append((title_of(name), [*native, *(_rich(each) for each in record.outputs)]))
        columns += [(title_of(name), [_html.code(problem)]) for name, problem in self.problems.items()]
        said, agree = self.verdict()
        verdict = _html.note("\n".join(said), GOOD if agree else BAD) if said else ""
        return _html.block(_html.columns(columns), verdict)


def sides_of(source: str, shown: Mapping[str, Shown], problems: Mapping[str, str]) -> Sides:
    """Return what a cell did on each kernel; kernels that ended are problems, like frameworks without environment."""
    cell = Cell(id="cell", number=1, source=source, line=1, tags=("raises-exception",))
    ended = {name: each.problem for name, each in shown.items() if each.problem is not None}
    ran = {name: cell_record(cell, each.outputs, ()) for name, each in shown.items() if each.problem is None}
    return Sides(ran, {**problems, **ended})


def _lines(record: CellRecord) -> list[str]:
    """Return the native lines of a cell, each once."""
    counts: dict[str, int] = {}
    for call in record.calls:
        counts[call.text] = counts.get(call.text, 0) + call.times
    return [text if count == 1 else f"{text}  # {count} times" for text, count in counts.items()]


def _plain(output: Mapping[str, Any]) -> str:
    """Return an output as text."""
    kind = output["output_type"]
    if kind == "stream":
        return str(output["text"])
    if kind == "error":
        return f"{output['ename']}: {output['evalue']}\n"
    text = output["data"].get("text/plain", "")
    return f"{text}\n" if text else ""


def _rich(output: Mapping[str, Any]) -> _html.Markup:
    """Return an output as a notebook displays it: HTML and pictures unchanged, everything else as text."""
    data = output.get("data", {})
    for kind in ("text/html", "image/svg+xml"):
        if kind in data:
            return _html.Markup(data[kind])
    for kind in ("image/png", "image/jpeg"):
        if kind in data:
            return _html.image(kind, data[kind])
    text = _html.code(_plain(output).rstrip("\n"))
    return _html.note(text, BAD) if output["output_type"] == "error" else text
