"""Check notebooks in own code: run them with native names on simulated GPUs, and compare with the neutral page.

The text of devices is made neutral first, because each framework writes it in its own way. Random numbers are the
framework's own: after a draw, shapes, dtypes and devices are compared, and no numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from devshim.devices import parsing
from devshim.errors import DevshimError
from devshim.tutorial import cache, running
from devshim.tutorial.building.slots import Shown
from devshim.tutorial.comparing import differences
from devshim.tutorial.environments import Environment
from devshim.tutorial.page import Cell, Page
from devshim.tutorial.record import CellRecord, Record

__all__ = ["Verdict", "judge", "page_of", "run"]

_SETUP = "own-words"
"""The id of the set-up cell."""
_DRAWS = ("uniform", "normal", "randint", "permutation", "bernoulli")
_NUMBERS = ("numbers", "digest", "least", "most", "mean")
_DIGITS = re.compile(r"-?\d+\.\d*(?:e[-+]?\d+)?")
_TEXTS = tuple(
    (re.compile(pattern), kind)
    for pattern, kind in (
        (r"Device\('gpu', (\d+)\)|device\(type='cuda', index=(\d+)\)|(?:Cuda|Sim\w*)Device\(id=(\d+)\)", "gpu"),
        (r"Place\((?:sim_)?gpu:(\d+)\)|/job:\S*?/device:GPU:(\d+)|/GPU:(\d+)|\b(?:sim|cuda|gpu)[:(](\d+)\b\)?", "gpu"),
        (r"Device\('cpu'(?:, 0)?\)|device\(type='cpu'\)|CpuDevice\(id=0\)|TFRT_CPU_0", "cpu"),
        (r"Place\(cpu\)|/job:\S*?/device:CPU:0|/CPU:0|\bcpu[:(]0\b\)?", "cpu"),
    )
)
"""The frameworks' spellings of devices, and devshim's word for their kind."""


@dataclass(frozen=True)
class Verdict:
    """The check of one framework's notebook in its own code.

    Attributes:
        framework: The framework.
        record: What the notebook did; its cells have the ids of the page's cells.
        differences: Cell -> how its results differ from those of the neutral page, as sentences.
        failed: The cells that raised an error, or did not run, while those of the neutral page did.
    """

    framework: str
    record: Record
    differences: dict[Cell, tuple[str, ...]]
    failed: tuple[Cell, ...]


def page_of(shown: Shown, frameworks: Iterable[str]) -> Page:
    """Return a page that has each framework's notebook in its own code; the first cell of each is the set-up."""
    cells: list[Cell] = []
    for name in frameworks:
        translated = shown.translated[name]
        assert translated is not None
        setup = f"# native names on simulated GPUs\n{translated.setup.rstrip()}"
        cells.append(Cell(_SETUP, 0, setup, frameworks=(name,)))
        for cell, source in zip(shown.page.cells_of(name), translated.sources, strict=True):
            cells.append(replace(cell, source=source, frameworks=(name,)))
    return replace(shown.page, parts=tuple(cells))


def run(shown: Shown, environments: Mapping[str, Environment], *, fresh: bool = False) -> dict[str, Verdict]:
    """Run the notebooks of frameworks that have environments, and compare them with the records of the page.

    Args:
        shown: The page with its records.
        environments: The environments of the frameworks to check.
        fresh: True to also run what has not changed.
    """
    page = page_of(shown, environments)
    known = {} if fresh else {name: cache.find(page, each, False, None) for name, each in environments.items()}
    records = {name: each for name, each in known.items() if each is not None}
    new = {name: each for name, each in environments.items() if name not in records}
    if new:
        records.update(running.run(page, new, running.Watcher(), native_names=True))
    return {name: judge(shown, name, records[name]) for name in environments}


def judge(shown: Shown, framework: str, record: Record) -> Verdict:
    """Compare what a notebook did with the record of the page."""
    differing: dict[Cell, tuple[str, ...]] = {}
    failed = []
    drawn = False
    if record.problem is not None or record.cells.get(_SETUP, CellRecord("ok")).status == "failed":
        failed.append(shown.page.cells_of(framework)[0])
    for cell in shown.page.cells_of(framework):
        neutral, own = shown.record_of(cell, framework), record.cells.get(cell.id, CellRecord("skipped"))
        drawn = drawn or any(call.call in _DRAWS for call in neutral.calls) or "random." in cell.source
        if own.status in ("failed", "skipped") and neutral.status in ("ok", "raised"):
            failed.append(cell)
        elif neutral.status in ("ok", "raised"):
            if cell.may_differ:  # what it prints may be a time
                neutral, own = _without_text(neutral), _without_text(own)
            apart = _compare(neutral, own, drawn or cell.may_differ)
            if apart:
                differing[cell] = tuple(apart)
    return Verdict(framework, record, differing, tuple(dict.fromkeys(failed)))


def _compare(neutral: CellRecord, own: CellRecord, drawn: bool) -> list[str]:
    if neutral.error is not None and own.error is not None:
        return []  # each framework words an error itself
    found = differences(_plain(neutral, False), _plain(own, False))
    return differences(_plain(neutral, True), _plain(own, True)) if found and drawn else found


def _without_text(record: CellRecord) -> CellRecord:
    return replace(record, outputs=tuple(each for each in record.outputs if each["output_type"] == "error"))


def _plain(record: CellRecord, without_numbers: bool) -> CellRecord:
    """Return a cell's record with devices in devshim's notation and, on request, without numbers."""
    outputs = tuple(_text(each, without_numbers) for each in record.outputs if each["output_type"] != "display_data")
    names = {name: _value(each, without_numbers) for name, each in record.names.items()}
    value = None if record.value is None else _value(record.value, without_numbers)
    return replace(record, outputs=outputs, names=names, value=value)


def _text(output: dict[str, Any], without_numbers: bool) -> dict[str, Any]:
    if output["output_type"] != "stream":
        return output
    text = neutral_text(output["text"])
    return {**output, "text": re.sub(r"\s+", " ", _DIGITS.sub("0.0", text)) if without_numbers else text}


def neutral_text(text: str) -> str:
    """Return text with the devices that it names in devshim's notation."""
    for pattern, kind in _TEXTS:
        text = pattern.sub(partial(_device, kind), text)
    return text


def _device(kind: str, match: re.Match[str]) -> str:
    return ":".join([kind, *filter(None, match.groups())])


def _value(value: dict[str, Any], without_numbers: bool) -> dict[str, Any]:
    kind, items = value["kind"], value.get("items")
    if isinstance(items, dict):
        pairs = sorted(items.items())  # JAX sorts the keys of dicts
        return {**value, "items": {key: _value(each, without_numbers) for key, each in pairs}}
    if items is not None:
        return {**value, "items": [_value(each, without_numbers) for each in items]}
    if kind == "text":
        try:
            return {"kind": "device", "value": str(parsing.device_of_argument(value["value"]))}
        except DevshimError:
            return value
    if without_numbers and kind == "number":
        return {"kind": "object", "type": "number"}
    return {name: each for name, each in value.items() if not (without_numbers and name in _NUMBERS)}
