"""The output of `devshim launch`: a live table on a terminal, or a line for each change, and the last paragraph."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from devshim.cli._console import Column, Grid, draw, is_terminal, say
from devshim.registry.processes import describe_exit
from devshim.world import launcher

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.live import Live
    from rich.table import Table

__all__ = ["JobView"]

_STYLES = {"runs": "green", "starts": "dim", "silent": "bold yellow", "returned": "dim", "failed": "bold red"}
_ORDER = {"failed": 0, "silent": 1, "starts": 2, "runs": 3, "returned": 4}
_AROUND = 8
"""The lines of a terminal that the table leaves free."""
_WHERE = 60
_REFRESHES = 4


@dataclass
class Row:
    """A rank in the table.

    Attributes:
        host: Its host.
        device: Its devices.
        state: ``starts``, ``runs``, ``silent``, ``returned`` or ``failed``.
        step: How many collectives it has started.
        where: The collective that it is in, or else the line of the program.
    """

    host: str
    device: str
    state: str = "starts"
    step: int = 0
    where: str = ""


class JobView:
    """Prints the events of a job, and stores what the last paragraph needs.

    Attributes:
        rows: The ranks, in order; empty until they have started.
    """

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._began = time.monotonic()
        self._attempt = 0
        self._live: Live | None = None

    def receive(self, kind: str, *rest: Any) -> None:
        """Take one event, as `devshim.world.launcher.launch_job` describes them."""
        if kind == "started":
            hosts, self._attempt, devices = rest
            self.rows = [Row(host, device) for host, device in zip(hosts, devices, strict=True)]
            each = ", ".join(f"{count} on {host}" for host, count in Counter(hosts).items())
            self._say(f"devshim: {self.count_ranks()} started: {each}")
        elif kind == "output":
            self._output(*rest)
        elif kind == "again":
            self._say(f"devshim: {rest[1]}; starting again (attempt {rest[0]})")
        elif kind == "state":
            self._change(*rest)
        elif kind == "steps":
            for rank, step in rest[0].items():
                self.rows[rank].step = max(self.rows[rank].step, step)
        elif kind == "end":
            rank, status, step, is_over = rest
            at = describe_exit(status) if status or not is_over else ""
            self._change(rank, "failed" if status else "returned", step, None, at)

    def _change(self, rank: int, state: str, step: int, what: str | None, at: str) -> None:
        row = self.rows[rank]
        before, row.state, row.step, row.where = row.state, state, step, what or at
        if self._live is not None or before == state:
            return
        name = f"devshim: rank {rank} on {row.host}"
        if state == "silent":
            self._say(f"{name} does not answer")
        elif state == "failed":
            self._say(f"{name} {at} at step {step}")
        elif state == "returned":
            self._say(f"{name} {at or 'has returned'} after {_steps(step)}")
        elif before == "silent":
            self._say(f"{name} answers again")

    def _say(self, text: str) -> None:
        if self._live is None:
            print(text, flush=True)
        else:
            self._live.console.print(text, style="bold")

    def _output(self, rank: int, host: str, stream: str, lines: list[str]) -> None:
        if self._live is None or (stream == "stderr" and not sys.stderr.isatty()):
            launcher.show_event("output", rank, host, stream, lines)
            return
        from rich.control import strip_control_codes
        from rich.text import Text

        for line in lines:  # colours stay, and nothing that a program prints can move the table
            said = Text.from_ansi(strip_control_codes(line).expandtabs())
            self._live.console.print(Text.assemble((f"[{rank} {host}] ", "dim"), said), soft_wrap=True)

    def grid(self, height: int | None = None) -> Grid:
        """Return the table; of more ranks than have a place, those that need attention or are behind."""
        columns = [Column(name) for name in ("rank", "host", "device", "step", "state", "where")]
        title = f"{self.count_ranks() if self.rows else 'starting'}, {time.monotonic() - self._began:.0f} s"
        ranks = list(range(len(self.rows)))
        if height is not None and len(ranks) > height:
            by_need = sorted(ranks, key=lambda rank: (_ORDER.get(self.rows[rank].state, 3), self.rows[rank].step))
            ranks = sorted(by_need[: max(height, 1)])
            title += f"; {len(self.rows) - len(ranks)} ranks are not shown"
        shown = [(rank, self.rows[rank]) for rank in ranks]
        cells = [(str(n), r.host, r.device, str(r.step), r.state, _short(r.where)) for n, r in shown]
        return Grid(title, columns, [*cells], _STYLES)

    @contextmanager
    def shown(self) -> Iterator[bool]:
        """Show the table while a block runs, if there is a terminal; yield True if so."""
        if not is_terminal() or "JPY_PARENT_PID" in os.environ:
            yield False
            return
        from rich.console import Console
        from rich.live import Live

        console = Console(highlight=False, markup=False)

        def drawn() -> Table:
            return draw(self.grid(max(console.height - _AROUND, 1)))

        with Live(console=console, get_renderable=drawn, refresh_per_second=_REFRESHES, redirect_stderr=False) as live:
            self._live = live
            try:
                yield True
            finally:
                self._live = None

    def count_ranks(self) -> str:
        """Return how many ranks there are."""
        return f"{len(self.rows)} rank{'' if len(self.rows) == 1 else 's'}"

    def after(self) -> str:
        """Return the seconds since the command began, and the number of starts if there were several."""
        starts = f", at start {self._attempt + 1}" if self._attempt else ""
        return f"after {time.monotonic() - self._began:.1f} s{starts}"

    def finish(self) -> None:
        """Print the paragraph of a job that ended well."""
        done = f"{self.count_ranks()} ended with exit status 0 {self.after()}"
        say(f"devshim: the job is done: {done} and {_steps(*(row.step for row in self.rows))}.", "bold green")

    def fail(self, problem: str, hint: str | None) -> None:
        """Print the paragraph of a job that failed, with the hint if no rank has started."""
        tail = f" Hint: {hint}" if hint and not self.rows else ""
        others = f" The ranks had reached {_steps(*(row.step for row in self.rows))}." if self.rows else ""
        say(
            f"devshim: the job failed {self.after()}: {problem}.{others} All ranks have been ended.{tail}",
            "bold red",
        )

    def interrupt(self, reason: str) -> None:
        """Print the paragraph of a job that somebody ended."""
        say(f"devshim: {reason} ended the job {self.after()}. All ranks have been ended.", "bold red")


def _steps(*counts: int) -> str:
    """Return ``12 steps``, or ``3 to 5 steps`` for ranks that differ."""
    least, most = min(counts, default=0), max(counts, default=0)
    return f"{most} step{'' if most == 1 else 's'}" if least == most else f"{least} to {most} steps"


def _short(text: str) -> str:
    return text if len(text) <= _WHERE else text[: _WHERE - 3] + "..."
