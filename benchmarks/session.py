"""One framework's measurements: what a benchmark asks for, and where it leaves what it found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import devshim as ds
from benchmarks.frameworks import NATIVE, Native
from benchmarks.paired import Spread, interleaved, ratios
from benchmarks.peers import Peer, at_hand
from benchmarks.record import Record, Row

Way = str | Callable[[], object]


@dataclass(frozen=True)
class Rival:
    """What a statement of ours is held against.

    Args:
        label: What the tables call it.
        way: A statement, or a function of no arguments.
        target: The most that ours may take beside it; None where that is only shown.
        peer: It is another library's.
        note: A word on how it is to be read.
    """

    label: str
    way: Way
    target: float | None = None
    peer: bool = False
    note: str = ""


class Session:
    """What is measured in one process.

    Args:
        environment: The framework's name, for MXNet with its major version.
        rounds: How many turns each comparison gets.
    """

    def __init__(self, environment: str, rounds: int) -> None:
        self.rounds = rounds
        self.native: Native = NATIVE[environment]
        self.backend = self.native.backend
        ds.use(self.backend)
        self.d = ds.cpu()
        ds.zeros(1)  # loads the adapter, which for MXNet mends its import
        quick = {"place": ds.place, "device_of": ds.device_of, "to_numpy": ds.to_numpy}  # imported by name
        self.names: dict[str, Any] = {"ds": ds, "d": self.d, **quick, **self.native.begin()}
        self.record = Record(environment, {})
        self._peers: dict[Peer, dict[str, Any]] | None = None

    @property
    def peers(self) -> dict[Peer, dict[str, Any]]:
        """The peers at hand, with what their statements know; imported when they are first asked for."""
        if self._peers is None:
            self._peers, self.record.absent = at_hand(self.backend)
        return self._peers

    def peers_with(self, what: str, names: dict[str, Any], target: float = 1.0) -> list[Rival]:
        """Return the peers that can do something, and add what their statements know to ``names``."""
        found = []
        for peer, known in self.peers.items():
            if statement := getattr(peer, what):
                names.update(known)
                found.append(Rival(f"{peer.name}: {statement}", statement, target, peer=True))
        return found

    def versus(
        self,
        benchmark: Any,
        group: str,
        case: str,
        ours: str | tuple[str, Way],
        rivals: list[Rival],
        names: Mapping[str, Any],
        *,
        rounds: int | None = None,
        note: str = "",
    ) -> dict[str, Spread]:
        """Time a statement of ours and its rivals by turns, and write a row for each rival.

        Args:
            benchmark: pytest-benchmark's fixture.
            group: The part of the page the rows belong to.
            case: What is done.
            ours: The statement, or its label and what is timed.
            rivals: What it is held against; with none, its time alone is written down.
            names: What the statements know beside ``ds``, its quick functions, ``d``, ``n`` and the framework.
            rounds: How many turns, if not as many as usual.
            note: A word for every row.

        Returns:
            The ratios, by the rival's label.
        """
        label, way = ours if isinstance(ours, tuple) else (ours, ours)
        ways = {"": way, **{rival.label: rival.way for rival in rivals}}
        times = interleaved(benchmark, ways, {**self.names, **names}, rounds or self.rounds)
        seconds = sorted(times[""])[len(times[""]) // 2]
        found: dict[str, Spread] = {}
        for rival in rivals:
            ratio = found[rival.label] = ratios(times[""], times[rival.label])
            benchmark.extra_info[f"ratio to {rival.label}"] = round(ratio.median, 3)
            self.add(
                Row(group, case, label, rival.label, target=rival.target, peer=rival.peer, note=rival.note or note),
                ratio,
                seconds,
                len(times[""]),
            )
        if not rivals:
            row = Row(group, case, label, value=seconds * 1e6, unit="us", seconds=seconds, rounds=len(times[""]))
            self.record.rows.append(row)
        return found

    def add(self, row: Row, found: Spread, seconds: float | None = None, rounds: int = 0) -> None:
        """Write a row down with what was found."""
        self.record.rows.append(
            Row(
                **{
                    **vars(row),
                    "value": found.median,
                    "interval": found.interval,
                    "quartiles": found.quartiles,
                    "seconds": seconds,
                    "rounds": rounds,
                }
            )
        )
