"""The results of a benchmark: one row for each comparison, and the facts of the machine and the packages."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = (
    *("devshim", "numpy", "torch", "tensorflow-cpu", "tensorflow", "paddlepaddle", "jax", "jaxlib", "mxnet", "optree"),
    *("keras", "array-api-compat", "accelerate", "ivy", "eagerpy"),
)
ORDER = ("numpy", "torch", "tensorflow", "jax", "paddle", "mxnet1", "mxnet2")
"""The order of environments in tables."""
ADDED = "us more"
"""The unit of a single operator on simulated GPUs; there are too many for the table of all targets."""


@dataclass(frozen=True)
class Row:
    """One measurement, as a ratio to another or in its own unit.

    Args:
        group: The part of the page it belongs to.
        case: The operation.
        ours: The devshim statement that is timed.
        rival: The alternative to which it is compared; empty for a measurement without one.
        value: The median; None if it could not be measured.
        target: The largest allowed value; None if the value is only shown.
        unit: "" for a ratio.
        interval: The median's 95% confidence interval.
        quartiles: The middle half of the measurements.
        seconds: The median time of one devshim call.
        rounds: How many turns there were.
        peer: True if the rival is another library, not the framework itself.
        note: How to read the row, or why it was not measured.
    """

    group: str
    case: str
    ours: str
    rival: str = ""
    value: float | None = None
    target: float | None = None
    unit: str = ""
    interval: tuple[float, float] | None = None
    quartiles: tuple[float, float] | None = None
    seconds: float | None = None
    rounds: int = 0
    peer: bool = False
    note: str = ""

    @property
    def met(self) -> str:
        """Return "yes" or "no" for a target that is met or not, "unclear" within the noise, and "" without a target."""
        if self.value is None:
            return "not measured"
        if self.target is None:
            return ""
        low, high = self.interval or (self.value, self.value)
        return "yes" if high <= self.target else "no" if low > self.target else "unclear"


@dataclass
class Record:
    """The results of one environment."""

    environment: str
    facts: dict[str, Any]
    rows: list[Row] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)
    """Peers that were not measured here, and why."""
    series: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """Points of the plots, by what they show."""

    def text(self) -> str:
        """Return the record as JSON: a line for each row, with four digits, without default values."""
        found = asdict(self)
        rows = [
            {key: each for key, each in row.items() if each != _DEFAULTS.get(key, ...)} for row in found.pop("rows")
        ]
        lines = ",\n  ".join(json.dumps(_short(row)) for row in rows)
        return f'{json.dumps(_short(found))[:-1]}, "rows": [\n  {lines}\n]}}'


def _short(found: Any) -> Any:
    """Return the same value with numbers of four digits."""
    if isinstance(found, float):
        return float(f"{found:.4g}")
    if isinstance(found, (list, tuple)):
        return [_short(each) for each in found]
    return {key: _short(each) for key, each in found.items()} if isinstance(found, dict) else found


_DEFAULTS = {each.name: each.default for each in fields(Row)}


def write(records: Iterable[Record], path: Path) -> None:
    """Write records into a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("[" + ",\n".join(record.text() for record in records) + "]\n", encoding="utf-8")


def from_json(found: dict[str, Any]) -> Record:
    """Return a record from the form in which it was written."""
    known = [
        {key: tuple(each) if isinstance(each, list) else each for key, each in row.items()} for row in found["rows"]
    ]
    series = {name: [(x, y) for x, y in points] for name, points in found["series"].items()}
    return Record(found["environment"], found["facts"], [Row(**row) for row in known], found["absent"], series)


def read(path: Path) -> list[Record]:
    """Return the records of a file, in the order of the tables."""
    return in_order(from_json(each) for each in json.loads(path.read_text(encoding="utf-8")))


def in_order(records: Iterable[Record]) -> list[Record]:
    """Return the records sorted; of two for one environment, the later one."""
    latest = {record.environment: record for record in records}
    return sorted(latest.values(), key=lambda record: (ORDER.index(record.environment), record.environment))


def facts() -> dict[str, Any]:
    """Return the facts on which the numbers depend: versions, machine, date."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "machine": f"{_processor()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}",
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "versions": {name: found for name in PACKAGES if (found := _version(name))},
    }


def _version(name: str) -> str | None:
    if name == "devshim":
        return sys.modules["devshim"].__version__ if "devshim" in sys.modules else None
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown processor"
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown processor"
    )
