"""One framework's measurements: the inputs that a benchmark requests, and the record to which it adds results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import devshim as ds
from benchmarks.frameworks import NATIVE, Native
from benchmarks.paired import Spread, interleaved, ratios
from benchmarks.peers import Peer, import_peers
from benchmarks.record import Record, Row

Way = str | Callable[[], object]


@dataclass(frozen=True)
class Rival:
    """An alternative to which a statement of devshim is compared.

    Args:
        label: Its name in the tables.
        way: A statement, or a function without arguments.
        target: The largest allowed ratio of our time to its time; None if the ratio is only shown.
        peer: True if it belongs to another library.
        note: How to read the row.
    """

    label: str
    way: Way
    target: float | None = None
    peer: bool = False
    note: str = ""


class Session:
    """The measurements of one process.

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
        ds.zeros(1)  # loads the adapter, which for MXNet fixes its import
        quick = {"place": ds.place, "device_of": ds.device_of, "to_numpy": ds.to_numpy}  # as if imported by name
        self.names: dict[str, Any] = {"ds": ds, "d": self.d, **quick, **self.native.begin()}
        self.record = Record(environment, {})
        self._peers: dict[Peer, dict[str, Any]] | None = None

    @property
    def peers(self) -> dict[Peer, dict[str, Any]]:
        """Return the available peers, with the names of their statements; they are imported when first requested."""
        if self._peers is None:
            self._peers, self.record.absent = import_peers(self.backend)
        return self._peers

    def peers_with(self, what: str, names: dict[str, Any], target: float = 1.0) -> list[Rival]:
        """Return the peers that support an operation, and add the names that their statements use to ``names``."""
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
        """Time a statement of devshim and its rivals in turns, and write a row for each rival.

        Args:
            benchmark: pytest-benchmark's fixture.
            group: The part of the page the rows belong to.
            case: The operation.
            ours: The statement, or its label and what is timed.
            rivals: The alternatives to which it is compared; with none, its time alone is recorded.
            names: What statements can use besides ``ds``, its quick functions, ``d``, ``n`` and the framework.
            rounds: How many turns, if not the usual number.
            note: A note for every row.

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
        """Add a row with its measurement to the record."""
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
