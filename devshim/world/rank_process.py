"""A rank's process and its last report, as the agent of its host stores them."""

from __future__ import annotations

import subprocess
import threading
import time
from pathlib import Path
from typing import Any

from devshim.world.output_end import OutputEnd
from devshim.world.reports import SILENT

__all__ = ["RankProcess"]


class RankProcess:
    """A rank's process, and its last report."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self.process: subprocess.Popen[bytes] = process
        self.folder: Path = folder
        self.output_end: OutputEnd = OutputEnd()
        self.heartbeat: dict[str, Any] = {}
        self.last_heartbeat: float = time.monotonic()
        self.is_unwatched: bool = False
        self.raised_since: float | None = None
        self.reported_late: bool = False
        self.reported_raised: bool = False
        self.reported: tuple[Any, ...] = ()
        self.ended: threading.Event = threading.Event()
        self.reported_call: tuple[Any, ...] = ()

    @property
    def tail(self) -> str:
        """The end of what it has printed as errors."""
        return str(self.output_end)

    @property
    def silent(self) -> float:
        """The seconds since its last heartbeat; 0 if the program has closed the pipe of heartbeats."""
        return 0.0 if self.is_unwatched else time.monotonic() - self.last_heartbeat

    @property
    def waits(self) -> float:
        """The seconds for which it has been in a collective."""
        return float(self.heartbeat.get("seconds", 0.0)) + self.silent

    @property
    def state(self) -> str:
        """``starts`` until its first heartbeat, then ``runs`` or ``silent``; at its end, Python stops the heartbeat."""
        is_silent = self.silent > SILENT and not self.heartbeat.get("ends")
        return "starts" if not self.heartbeat else "silent" if is_silent else "runs"

    def report(self) -> dict[str, Any]:
        """Return its last heartbeat, the seconds since then, and, if its program has ended, the end of its output."""
        return {**self.heartbeat, "silent": self.silent, "tail": self.tail if self.heartbeat.get("ends") else ""}
