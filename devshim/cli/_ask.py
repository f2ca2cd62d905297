"""Ask each framework for its devices, in its own process, several at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import devshim as ds
from devshim.cli._console import spinner
from devshim.registry import environment as environment_module
from devshim.registry import processes

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Answer", "ask", "find_installed"]

PATIENCE = 180
"""The seconds that a framework may take to be imported and asked."""

_AT_ONCE = 3


@dataclass(frozen=True)
class Answer:
    """The devices that one framework reports.

    Attributes:
        info: Its name and version.
        devices: A dict for each device, as `devshim.cli._probe` makes it.
        why: The reason if it has no GPUs, or not more.
        clashes: Known problems with importing other frameworks into the same process.
        broken: Why it could not be asked, or None.
    """

    info: ds.BackendInfo
    devices: list[dict[str, Any]] = field(default_factory=list)
    why: str = ""
    clashes: list[str] = field(default_factory=list)
    broken: str | None = None

    @property
    def gpus(self) -> int:
        """The number of GPUs and other accelerators that it reports."""
        return sum(each["device"] != "cpu" for each in self.devices)

    @property
    def platforms(self) -> list[str]:
        """The platforms of those, such as ``cuda`` or ``mps``, each once."""
        found = [each.get("platform", "") for each in self.devices if each["device"] != "cpu"]
        return [name for name in dict.fromkeys(found) if name]


def find_installed(backend: str | None = None) -> list[ds.BackendInfo]:
    """Return the installed frameworks, or the one named; raise `BackendNotFoundError` if it is missing."""
    have = ds.backends()
    if backend is None:
        return list(have.values())
    with ds.using(backend) as name:
        return [have[name]]


def ask(infos: Sequence[ds.BackendInfo], *, simulate: bool = True) -> list[Answer]:
    """Ask frameworks for their devices.

    Args:
        infos: The frameworks.
        simulate: True to show the simulated GPUs that the environment asks for.
    """
    environment = dict(os.environ)
    if simulate:
        environment_module.require_sound()  # an invalid variable does not mean that a framework is broken
        environment_module.warn_about_unread()
    else:
        environment.pop("DEVSHIM_SIMULATE_GPUS", None)
    with spinner(f"asking {', '.join(info.title for info in infos)}"), ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(lambda info: _ask(info, environment), infos))


def _ask(info: ds.BackendInfo, environment: dict[str, str]) -> Answer:
    command = [sys.executable, "-m", "devshim.cli._probe", info.name]
    try:
        done = subprocess.run(command, capture_output=True, env=environment, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        return Answer(info, broken=f"it did not answer within {PATIENCE} seconds")
    if done.returncode:
        return Answer(info, broken=_end(done.returncode, done.stderr.decode(errors="replace")))
    return Answer(info, **json.loads(done.stdout))


def _end(code: int, errors: str) -> str:
    """Return how a process ended that gave no answer."""
    if code < 0:
        return f"the process {processes.describe_exit(code)} while it imported the framework"
    lines = errors.strip().splitlines()
    return lines[-1].strip() if lines else f"the process {processes.describe_exit(code)}"
