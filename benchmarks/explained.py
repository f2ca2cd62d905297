"""The paragraph of `profiles.md` that explains why a target is missed.

The page lists each missed target with its paragraph. A test fails if there is none, or if the paragraph does
not name the framework.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from benchmarks.record import ADDED, Record, Row
from devshim.registry.discovery import TITLES

PARAGRAPHS = {
    "A copy of 4 bytes": ("copy of 4 B",),
    "A tensor that is there already": ("place, there already",),
    "Large copies": ("copy of 1 MiB", "copy of 64 MiB"),
    "Conversion": ("conversion",),
    "Making and reading tensors": ("ones", "full", "asarray", "from_numpy", "to_numpy", "random."),
    "`on`": ("on",),
    "`run`": ("run",),
    "Real cards": ("1,000 tensors of 4 KiB", "pageable 1 GiB", "LeNet on the card"),
    "Import beside other libraries": ("import after",),
    "The first call": ("first call",),
    "Files": ("save", "load"),
    "`MetricLog`": ("MetricLog",),
    "A ledger open": ("a ledger open",),
    "A guard open on training steps": ("a guard open",),
    "`value_and_grad`": ("value_and_grad",),
    "Growth": ("cost per leaf", "1,000 leaves, there already, 20 times"),
    "`split`": ("split",),
    "`gather`": ("gather",),
    "`broadcast`": ("broadcast",),
    "`all_reduce_`": ("all_reduce_",),
    "`parallel`": ("parallel",),
    "Devices asked 1,000 times": ("devices asked",),
    "Operators of PyTorch on simulated GPUs": (),
    "Steps on simulated GPUs": ("a training step", "ResNet-18"),
    "A model on two devices": ("MLP on two",),
    "Keras' `fit`": ("a Keras model",),
    "`namespace`": ("namespace",),
    "Training": ("LeNet",),
}
"""The title of a paragraph -> how the cases begin that it explains; single operators on simulated GPUs have one."""
OPERATORS = "Operators of PyTorch on simulated GPUs"
ALL = "every framework"
"""A paragraph with these words covers all of them."""


def missed(records: Sequence[Record]) -> Iterator[tuple[Record, Row]]:
    """Yield each row whose target is missed, or was not measured."""
    for record in records:
        for row in record.rows:
            if row.target is not None and row.met in ("no", "not measured"):
                yield record, row


def title_of(row: Row) -> str | None:
    """Return the title of the paragraph that explains a row, or None."""
    if row.unit == ADDED:
        return OPERATORS
    word = lambda start: row.case == start or row.case.startswith((f"{start} ", f"{start},", f"{start}'"))  # noqa: E731
    for title, starts in PARAGRAPHS.items():
        if any(row.case.startswith(start) if start.endswith(".") else word(start) for start in starts):
            return title
    return None


def paragraphs(profiles: str) -> dict[str, str]:
    """Return the paragraphs of the profiles, by their titles."""
    found: dict[str, str] = {}
    for text in re.split(r"\n(?=- \*\*)|\n\n", profiles):
        if match := re.match(r"- \*\*(.+?)\.?\*\*", " ".join(text.split())):
            found[match[1]] = " ".join(text.split())
    return found


def unexplained(records: Sequence[Record], profiles: str) -> list[str]:
    """Return a line for each missed target that no paragraph explains for its framework."""
    known, lines = paragraphs(profiles), []
    for record, row in missed(records):
        title, name = title_of(row), TITLES[record.environment.rstrip("12")]
        text = known.get(title or "")
        if text is None:
            lines.append(f"{record.environment}: {row.case}: no paragraph {title!r}")
        elif name not in text and ALL not in text:
            lines.append(f"{record.environment}: {row.case}: {title!r} does not speak of {name}")
    return lines
