"""The published form of the results: for each pair, what happens to which dtype in which layout."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from cells import ADDRESSES, BACKENDS, DTYPES, LAYOUTS, MOVES, NO_DTYPE, TRAINED, Cell
from pool import Results

import devshim as ds

Record = dict[str, Any]
"""``versions``; ``checked``: the number of conversions; ``why``: reasons; ``pairs``: for each a list of rows.

A row has the layouts, on GPUs the move, the outcome of ``copy=None``, the number of its reason, and the dtypes.
"""

Case = tuple[str, str, str, str | None]
"""A cell without its ``copy``: layout, dtype, here, there."""


def by_case(cells: list[tuple[Cell, str, str]]) -> dict[Case, dict[bool | None, tuple[str, str]]]:
    """Return the outcomes of one pair by source, then by ``copy``."""
    found: dict[Case, dict[bool | None, tuple[str, str]]] = defaultdict(dict)
    for cell, outcome, why in cells:
        found[cell.layout, cell.dtype, cell.here, cell.there][cell.copy] = (outcome, why)
    return found


def wrong(results: Results) -> list[str]:
    """Return what is wrong: a line for each cell, and each case whose three kinds of ``copy`` disagree."""
    found = []
    for task, cells in results.items():
        pair = f"{task.source} -> {task.target}"
        found += [f"{pair}: {cell}: {why}" for cell, outcome, why in cells if outcome == "wrong"]
        for case, outcomes in by_case(cells).items():
            kinds = tuple(outcomes[copy][0] for copy in (None, False, True))
            if "wrong" not in kinds and kinds not in FITTING:
                found.append(f"{pair}: {case}: copy=None, False and True are {', '.join(kinds)}")
    return found


FITTING = {
    ("absent", "absent", "absent"),
    ("refused", "refused", "refused"),
    ("shared", "shared", "copied"),
    ("copied", "refused", "copied"),
    ("same", "same", "copied"),
    ("same", "same", "refused"),  # a dtype that the framework itself cannot copy
}
"""Allowed outcomes of ``copy=None``, ``False`` and ``True`` for the same tensor."""


def versions() -> dict[str, str]:
    """Return the version of each framework, without build information."""
    return {name: str(info.version).partition("+")[0] for name, info in ds.backends().items()}


def record(results: Results, versions: dict[str, str]) -> Record:
    """Return the results as a record."""
    reasons: list[str] = []
    pairs = {}
    for source in BACKENDS:
        for target in BACKENDS:
            mine = {task: cells for task, cells in results.items() if (task.source, task.target) == (source, target)}
            rows = [row for task, cells in mine.items() for row in _rows(cells, reasons)]
            pairs[f"{source} {target}"] = sorted(rows, key=_order)
    checked = sum(outcome != "absent" for cells in results.values() for _, outcome, _ in cells)
    return {"versions": versions, "checked": checked, "why": reasons, "pairs": pairs}


PREFIX = re.compile(
    "^(copy=False was given, and )?"
    "(.* cannot share its memory: )?"
    "(neither NumPy nor DLPack carries .*?: )?"
    "(.* does not accept .*? memory( of this .*?)?: )?"
)
"""Parts of a message about the pair, which the table already shows."""


ALIGNMENTS = tuple(f"aligned to {bytes}" for bytes in (1, 2, 4, 8, 16, 32, 64))
"""The published form of `ADDRESSES`: the largest power of two that divides each."""
NOT_ALIGNED = re.compile(r"(memory aligned to) (\d+) bytes for \w+, and the alignment of this address is \d+")


def _layout(layout: str) -> str:
    offset = ADDRESSES.get(layout)
    return layout if offset is None else f"aligned to {offset & -offset}"


def _why(why: str, dtype: str) -> str:
    """Return a reason without what the table already shows, and without the dtype."""
    general = PREFIX.sub("", why).replace(f"dtype '{dtype}'", "such dtype")
    return NOT_ALIGNED.sub(
        lambda found: f"{found[1]} {'its elements' if int(found[2]) <= 16 else f'{found[2]} bytes'}, and this is not",
        general,
    )


def _rows(cells: list[tuple[Cell, str, str]], reasons: list[str]) -> list[list[Any]]:
    """Return one row for each move, outcome and reason, with all their layouts and dtypes."""
    grouped = defaultdict(list)
    for (layout, dtype, here, there), outcomes in by_case(cells).items():
        outcome, why = outcomes[None]
        if outcome == "copied":
            why = outcomes[False][1]
        if outcome != "absent" and dtype != NO_DTYPE:
            move = "" if here == "cpu" and there is None else f"{here} to {there or here}"
            dtypes = grouped[_layout(layout), move, outcome, _why(why, dtype)]
            dtypes.append(dtype) if dtype not in dtypes else None
    merged = defaultdict(list)
    for (layout, *rest), dtypes in grouped.items():
        merged[(*rest, " ".join(sorted(dtypes, key=DTYPES.index)))].append(layout)
    return [
        [layouts, move, outcome, _number(why, reasons), dtypes]
        for (move, outcome, why, dtypes), layouts in merged.items()
    ]


def _number(why: str, reasons: list[str]) -> int | None:
    if not why:
        return None
    if why not in reasons:
        reasons.append(why)
    return reasons.index(why)


def _order(row: list[Any]) -> tuple[Any, ...]:
    moves = ["", *(f"{here} to {there or here}" for here, there in MOVES)]
    return moves.index(row[1]), (*LAYOUTS, *ALIGNMENTS, *TRAINED).index(row[0][0]), DTYPES.index(row[4].split()[0])


def write(kept: Record, path: Path) -> None:
    """Write a record with one line for each row, so that diffs stay small."""
    pairs = ",\n".join(
        f"  {json.dumps(pair)}: [\n" + ",\n".join(f"   {json.dumps(row)}" for row in rows) + "\n  ]"
        for pair, rows in kept["pairs"].items()
    )
    head = {name: value for name, value in kept.items() if name != "pairs"}
    text = json.dumps(head, indent=1).removesuffix("\n}")
    path.write_text(f'{text},\n "pairs": {{\n{pairs}\n }}\n}}\n', encoding="utf-8")


def read(path: Path) -> Record:
    """Return a record that was written."""
    found: Record = json.loads(path.read_text(encoding="utf-8"))
    return found
