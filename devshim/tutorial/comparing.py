"""Compare the records of a page's frameworks: values, printed text and errors, cell by cell.

The frameworks whose results of a cell agree are one group. The largest group is the reference; a framework outside it
is the odd one. Cells for only one framework are not compared, and cells with the tag ``differs`` may differ.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from devshim.tutorial.page import Cell, Page
    from devshim.tutorial.record import CellRecord, Record

__all__ = ["RTOL", "Comparison", "Report", "compare", "differences"]

RTOL = 1e-4
"""The relative and absolute tolerance of numbers."""
_NUMBER = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?")
_SHOWN = 60
_VALUE = "the value"
_NOTHING = {"kind": "none"}


@dataclass(frozen=True)
class Comparison:
    """The comparison of one cell.

    Attributes:
        cell: The cell.
        groups: The frameworks that agree with each other, the largest group first.
        odd: The frameworks outside the largest group; empty if two groups are the largest.
        differences: How each framework outside the first group differs from it, as sentences.
    """

    cell: Cell
    groups: tuple[tuple[str, ...], ...]
    odd: tuple[str, ...]
    differences: dict[str, tuple[str, ...]]

    @property
    def agree(self) -> bool:
        """True if all frameworks that ran the cell agree."""
        return len(self.groups) < 2

    @property
    def ok(self) -> bool:
        """True if they agree, or may differ."""
        return self.agree or self.cell.may_differ


@dataclass(frozen=True)
class Report:
    """The comparison of a page: that of each neutral cell by the cell's id, in order."""

    cells: dict[str, Comparison]

    @property
    def undeclared(self) -> list[Comparison]:
        """The cells that differ without the tag ``differs``."""
        return [each for each in self.cells.values() if not each.ok]


def compare(page: Page, records: Mapping[str, Record], rtol: float = RTOL) -> Report:
    """Compare the records of a page's frameworks; a framework that skipped a cell, or failed in it, is left out."""
    found = {}
    for cell in page.cells:
        ran = {name: record.cells[cell.id] for name, record in records.items() if cell.id in record.cells}
        done = {name: each for name, each in ran.items() if each.status in ("ok", "raised")}
        if cell.frameworks is None:
            titled = {name: _Result(each, records[name].title) for name, each in done.items()}
            found[cell.id] = _compare_cell(cell, titled, rtol)
    return Report(found)


class _Result(NamedTuple):
    """The record of a cell on one framework, and the framework's title, which errors name."""

    cell: CellRecord
    title: str


def _compare_cell(cell: Cell, ran: Mapping[str, _Result], rtol: float) -> Comparison:
    groups: list[list[str]] = []
    for name, each in ran.items():
        mine = next((group for group in groups if not _differences(ran[group[0]], each, rtol)), None)
        if mine is None:
            groups.append([name])
        else:
            mine.append(name)
    groups.sort(key=len, reverse=True)  # stable: of equal ones, that of the page's first framework
    single = len(groups) > 1 and len(groups[0]) > len(groups[1])
    others = [name for group in groups[1:] for name in group]
    apart = {name: tuple(_differences(ran[groups[0][0]], ran[name], rtol)) for name in others}
    return Comparison(cell, tuple(map(tuple, groups)), tuple(others) if single else (), apart)


def _differences(first: _Result, other: _Result, rtol: float) -> list[str]:
    return differences(first.cell, other.cell, rtol, (first.title, other.title))


def differences(
    first: CellRecord, other: CellRecord, rtol: float = RTOL, titles: tuple[str, str] = ("", "")
) -> list[str]:
    """Return how the results of a cell on two frameworks differ, as sentences: the other's, then the first's.

    Errors may name the framework that raises them: `titles` are the names of the two.
    """
    found: list[str] = []
    if first.error is not None or other.error is not None:
        found += _error_differences(_neutralize(first.error, titles[0]), _neutralize(other.error, titles[1]), rtol)
    if first.stdout != other.stdout:
        found += _text_differences(first.stdout, other.stdout, rtol)
    shown = list(_value_differences(first.value or _NOTHING, other.value or _NOTHING, rtol, _VALUE))
    for name in [name for name in first.names if name in other.names]:
        assigned = list(_value_differences(first.names[name], other.names[name], rtol, name))
        if [each.replace(_VALUE, name, 1) for each in shown] == assigned:
            shown = []  # the last line shows the variable
        found += assigned
    return list(dict.fromkeys([*shown, *found]))


def _neutralize(error: str | None, title: str) -> str | None:
    return error.replace(title, "the framework") if error and title else error


def _error_differences(first: str | None, other: str | None, rtol: float) -> Iterator[str]:
    if first is None or other is None:
        yield (
            f"raises {_short(other)}, the others raise nothing"
            if first is None
            else f"raises nothing, not {_short(first)}"
        )
    elif not _same_text(first, other, rtol):
        yield f"raises {_short(other)}, not {_short(first)}"


def _text_differences(first: str, other: str, rtol: float) -> Iterator[str]:
    """Yield the first line of printed text that differs; numbers in it are compared as numbers."""
    pairs = zip_longest(first.rstrip().split("\n"), other.rstrip().split("\n"), fillvalue="")
    for number, (one, two) in enumerate(pairs, 1):
        if not _same_text(one.rstrip(), two.rstrip(), rtol):
            yield f"prints {_short(two)}, not {_short(one)}" + (f" (line {number})" if number > 1 else "")
            return


def _same_text(first: str, other: str, rtol: float) -> bool:
    if first == other:
        return True
    if _NUMBER.sub("0", first) != _NUMBER.sub("0", other):
        return False
    pairs = zip(_NUMBER.findall(first), _NUMBER.findall(other), strict=True)
    decimal = re.compile(r"[.eE]")  # whole numbers must be equal
    return all(a == b or (bool(decimal.search(a + b)) and _close(float(a), float(b), rtol)) for a, b in pairs)


def _value_differences(first: dict[str, Any], other: dict[str, Any], rtol: float, name: str) -> Iterator[str]:
    kind = first["kind"]
    if kind != other["kind"]:
        yield f"{name} is {_describe_value(other)}, not {_describe_value(first)}"
    elif kind == "tensor":
        yield from _tensor_differences(first, other, rtol, name)
    elif kind == "dict":
        yield from _dict_differences(first["items"], other["items"], rtol, name)
    elif kind in ("list", "tuple"):
        yield from _list_differences(first["items"], other["items"], rtol, name)
    elif kind == "number":
        if not _close(first["value"], other["value"], rtol):
            yield f"{name} is {other['value']}, not {first['value']}"
    elif kind == "text":
        if not _same_text(first["value"], other["value"], rtol):
            yield f"{name} is {_short(other['value'])}, not {_short(first['value'])}"
    elif kind != "object" and first.get("value") != other.get("value"):  # the types of objects are the frameworks' own
        yield f"{name} is {other['value']}, not {first['value']}"


def _tensor_differences(first: dict[str, Any], other: dict[str, Any], rtol: float, name: str) -> Iterator[str]:
    for key in ("shape", "dtype", "device"):
        if first[key] != other[key]:
            one, two = (tuple(each[key]) if key == "shape" else each[key] for each in (first, other))
            yield f"the {key} of {name} is {two}, not {one}"
    if first["shape"] != other["shape"]:
        return
    numbers = list(zip(first.get("numbers", ()), other.get("numbers", ()), strict=False))
    scale = max((abs(a) for a, _ in numbers if not isinstance(a, str)), default=0.0)
    apart = [(a, b) for a, b in numbers if not _close(a, b, rtol, scale)]
    if apart:
        a, b = max(apart, key=lambda pair: _distance(*pair))
        yield f"the numbers of {name} differ: {b}, not {a} ({len(apart)} of {len(numbers)} differ)"
    elif first["dtype"] == other["dtype"] and first.get("digest") != other.get("digest"):
        yield f"some numbers of {name} differ"
    for key in ("least", "most", "mean"):
        if not apart and key in first and key in other and not _close(first[key], other[key], rtol, scale):
            yield f"the numbers of {name} differ: {key} {other[key]}, not {first[key]}"


def _dict_differences(first: dict[str, Any], other: dict[str, Any], rtol: float, name: str) -> Iterator[str]:
    if list(first) != list(other):
        yield f"{name} has the keys {_short(', '.join(other))}, not {_short(', '.join(first))}"
        return
    for key in first:
        yield from _value_differences(first[key], other[key], rtol, f"{name}[{key!r}]")


def _list_differences(first: list[Any], other: list[Any], rtol: float, name: str) -> Iterator[str]:
    if len(first) != len(other):
        yield f"{name} has {len(other)} items, not {len(first)}"
        return
    for i, (one, two) in enumerate(zip(first, other, strict=True)):
        yield from _value_differences(one, two, rtol, f"{name}[{i}]")


def _close(first: float | str, other: float | str, rtol: float, scale: float = 1e-6) -> bool:
    """Return True if two numbers agree; near zero, to a hundredth of the tolerance of the largest number, `scale`."""
    if isinstance(first, str) or isinstance(other, str):  # nan and the infinities
        return first == other
    return math.isclose(first, other, rel_tol=rtol, abs_tol=rtol * scale / 100)


def _distance(first: float | str, other: float | str) -> float:
    return math.inf if isinstance(first, str) or isinstance(other, str) else abs(first - other)


def _describe_value(value: dict[str, Any]) -> str:
    if value["kind"] == "object":
        return f"an object of type {value['type']}"
    return {"none": "None", "tensor": "a tensor"}.get(value["kind"], f"a {value['kind']}")


def _short(text: str | None) -> str:
    """Return text in quotes, on one line, and shortened."""
    line = " ".join((text or "").split())
    return repr(line if len(line) <= _SHOWN else line[: _SHOWN - 3] + "...")
