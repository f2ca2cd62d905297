"""What `devshim certify` found on one machine, as JSON."""

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
        title: Its name as its makers write it.
        version: Its version.
        gpus: How many GPUs it sees.
        why: Why it was not checked, or none.
        results: How its claims ended.
    """

    name: str
    title: str
    version: str | None
    gpus: int
    why: str = ""
    results: list[Result] = field(default_factory=list)

    def count(self, status: str) -> int:
        """Return how many claims ended so."""
        return sum(result.status == status for result in self.results)


@dataclass
class Report:
    """The machine and all results.

    Attributes:
        driver: The version of the NVIDIA driver, or None.
        cards: The models of the machine's cards, in the driver's order.
        simulated: True if the GPUs were simulated.
        quick: True if tensors were smaller, and rounds fewer.
        frameworks: The installed frameworks.
        devshim: The version of devshim.
        python: The version of Python.
        system: The operating system.
        date: The day, in UTC.
    """

    driver: str | None
    cards: list[str]
    simulated: bool
    quick: bool
    frameworks: list[Framework] = field(default_factory=list)
    devshim: str = ds.__version__
    python: str = field(default_factory=platform.python_version)
    system: str = field(default_factory=platform.platform)
    date: str = field(default_factory=lambda: dt.datetime.now(dt.timezone.utc).date().isoformat())

    @property
    def failed(self) -> bool:
        """True if a claim is false."""
        return any(framework.count(FAIL) for framework in self.frameworks)

    def to_json(self) -> str:
        """Return it as JSON text."""
        return json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Report:
        """Read what `to_json` wrote; anything else raises `ValueError`, `TypeError` or `KeyError`."""
        read: dict[str, Any] = json.loads(text)
        frameworks = []
        for each in read.pop("frameworks"):
            results = [Result(**result) for result in each.pop("results")]
            frameworks.append(Framework(**each, results=results))
        return cls(**read, frameworks=frameworks)
