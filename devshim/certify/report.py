"""The results of `devshim certify` on one machine, as JSON."""

from __future__ import annotations

import datetime as dt
import json
import platform
from dataclasses import asdict, dataclass, field
from typing import Any

import devshim as ds
from devshim.certify.claims import FAIL, Result

__all__ = ["Framework", "Report"]


@dataclass
class Framework:
    """One framework's results.

    Attributes:
        name: Its import name.
        title: Its name in its official spelling.
        version: Its version.
        gpus: The number of GPUs that it sees.
        why: Why it was not checked, or none.
        results: The results of its claims.
    """

    name: str
    title: str
    version: str | None
    gpus: int
    why: str = ""
    results: list[Result] = field(default_factory=list)

    def count(self, status: str) -> int:
        """Return how many claims have a status."""
        return sum(result.status == status for result in self.results)


@dataclass
class Report:
    """The machine and all results.

    Attributes:
        driver: The version of the NVIDIA driver, or None.
        cards: The models of the machine's GPUs, in the driver's order.
        simulated: True if the GPUs were simulated.
        quick: True if tensors were smaller, and rounds fewer.
        frameworks: The installed frameworks.
        devshim: The version of devshim.
        python: The version of Python.
        system: The operating system and the processor, without a release, which can name the machine.
        date: The day, in UTC.
    """

    driver: str | None
    cards: list[str]
    simulated: bool
    quick: bool
    frameworks: list[Framework] = field(default_factory=list)
    devshim: str = ds.__version__
    python: str = field(default_factory=platform.python_version)
    system: str = field(default_factory=lambda: f"{platform.system()} {platform.machine()}")
    date: str = field(default_factory=lambda: dt.datetime.now(dt.timezone.utc).date().isoformat())

    @property
    def failed(self) -> bool:
        """True if a claim is false."""
        return any(framework.count(FAIL) for framework in self.frameworks)

    def to_json(self) -> str:
        """Return the report as JSON text."""
        return json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Report:
        """Read the text that `to_json` wrote; raise `ValueError`, `TypeError` or `KeyError` for any other text."""
        read: dict[str, Any] = json.loads(text)
        frameworks = []
        for each in read.pop("frameworks"):
            results = [Result(**result) for result in each.pop("results")]
            frameworks.append(Framework(**each, results=results))
        return cls(**read, frameworks=frameworks)
