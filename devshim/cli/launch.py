"""`devshim launch`: run a program in several processes, and say at the end what happened."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from devshim.cli._console import say
from devshim.errors import WorldError
from devshim.world import cluster, launcher

__all__ = ["main"]

_STARTUP = Path(__file__).parent / "_startup"


def main(program: Sequence[str], **options: Any) -> int:
    """Run a program, print its output with the rank and the host, and return the exit code."""
    cluster.require_ray()
    job = launcher.job_of(**options)
    path = [str(_STARTUP), *filter(None, [job.environment.get("PYTHONPATH")])]
    environment = {**job.environment, "PYTHONPATH": ":".join(path)}
    view = _View()
    try:
        launcher.launch_job(replace(job, command=[sys.executable, *program], environment=environment), view.hear)
    except WorldError as error:
        say(f"devshim: the job failed {view.after()}: {error.problem}. All ranks have been ended.", "bold red")
        return 1
    say(f"devshim: the job is done: {view.described()} ended with exit status 0 {view.after()}.", "bold green")
    return 0


class _View:
    """Prints the events of a job, and remembers what the last paragraph needs."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._hosts: list[str] = []
        self._attempt = 0

    def hear(self, kind: str, *rest: Any) -> None:
        """Print one event."""
        if kind == "started":
            self._hosts, self._attempt = rest
            each = ", ".join(f"{count} on {host}" for host, count in Counter(self._hosts).items())
            say(f"devshim: {self.described()} started: {each}")
        elif kind in ("output", "again"):
            launcher.show_event(kind, *rest)

    def described(self) -> str:
        """Return how many ranks there are."""
        return f"{len(self._hosts)} rank{'' if len(self._hosts) == 1 else 's'}"

    def after(self) -> str:
        """Return the seconds since the command began, and the number of starts if there were several."""
        starts = f", at start {self._attempt + 1}" if self._attempt else ""
        return f"after {time.monotonic() - self._began:.1f} s{starts}"
