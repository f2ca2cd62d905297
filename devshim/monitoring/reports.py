"""The presentation of a ledger: a table, a trace, and a picture."""

from __future__ import annotations

import json
import os
from collections import Counter
from typing import TYPE_CHECKING, Any

from devshim._html import badge, block, join, size
from devshim._html import table as html_table
from devshim.devices.device import CPU

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from os import PathLike

    from devshim.devices.device import Device
    from devshim.monitoring.ledger import Transfer

SHOWN = 20
"""Rows of a table; one more row has the number of the others."""
COLUMNS = ("from", "to", "copies", "tensors", "size", "ms", "line")
NUMBERS = range(2, 6)
"""The indices of the columns that contain numbers."""


def table(records: Sequence[Transfer]) -> str:
    """Return the copies as a table: each line of the user's program with its copies, the largest first.

    It is made without rich, which would print it in a notebook instead of returning it.
    """
    if not records:
        return "<no transfers>"
    ordered, total = _by_line(records)
    rows = [COLUMNS]
    rows += [(source, target, *_numbers(row), _short(site)) for (source, target, site), row in ordered[:SHOWN]]
    if len(ordered) > SHOWN:
        rows.append(("", "", "", "", "", "", f"and {len(ordered) - SHOWN} more lines"))
    rows.append(("all", "", *_numbers(total), ""))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(map(_align, range(len(row)), row, widths)).rstrip() for row in rows)


def html(records: Sequence[Transfer]) -> str:
    """Return the copies as HTML: a matrix of the bytes from each device to each, and the lines of the program."""
    if not records:
        return block("no transfers")
    records = list(records)  # other threads may add records meanwhile
    devices, sums = _by_device(records)
    simulated = any(record.simulated for record in records)
    ordered, total = _by_line(records)
    copies = "1 copy" if len(records) == 1 else f"{len(records)} copies"
    title = join(f"{copies}, {size(total[2])}, {total[3] * 1e3:.2f} ms", badge("simulated") if simulated else "")
    grid = [[str(a), *(size(sums[a, b]) if (a, b) in sums else "" for b in devices)] for a in devices]
    matrix = html_table(["from \\ to", *map(str, devices)], grid, right=range(1, len(devices) + 1))
    lines = [(*ends, *_numbers(row), _short(site)) for (*ends, site), row in ordered]
    return block(title, matrix, html_table(COLUMNS, lines, right=NUMBERS))


def _by_device(records: Iterable[Transfer]) -> tuple[list[Device], Counter[tuple[Device, Device]]]:
    """Return the devices of the copies, in order, and the bytes from each to each; exchanges of ranks do not count."""
    sums: Counter[tuple[Device, Device]] = Counter()
    for record in records:
        if not record.call:
            sums[record.source, record.target] += record.bytes
    return sorted({device for pair in sums for device in pair}), sums


def _by_line(records: Sequence[Transfer]) -> tuple[list[tuple[tuple[str, str, str], list[float]]], list[float]]:
    """Return copies, tensors, bytes and seconds of each source, target and line, most bytes first; and of all."""
    sums: dict[tuple[str, str, str], list[float]] = {}
    for record in records:
        row = sums.setdefault((*_ends(record), record.site), [0, 0, 0, 0.0])
        for i, value in enumerate((1, record.tensors, record.bytes, record.seconds)):
            row[i] += value
    ordered = sorted(sums.items(), key=lambda item: -item[1][2])
    return ordered, [sum(row[i] for _, row in ordered) for i in range(4)]


def _numbers(sums: Sequence[float]) -> tuple[str, str, str, str]:
    """Return copies, tensors, bytes and seconds as the cells of a row."""
    copies, tensors, nbytes, seconds = sums
    return (str(copies), str(tensors), size(nbytes), f"{seconds * 1e3:.2f}")


def _align(column: int, cell: str, width: int) -> str:
    """Return a cell of the table; numbers are aligned to the right."""
    return cell.rjust(width) if column in NUMBERS else cell.ljust(width)


def _short(site: str) -> str:
    """Return a line's file without its folder."""
    path, _, line = site.rpartition(":")
    return f"{os.path.basename(path)}:{line}"


def _ends(record: Transfer) -> tuple[str, str]:
    """Return the source and the target as text, simulated devices marked; the target of an exchange is its ranks."""
    mark = " (simulated)" if record.simulated else ""
    source, target = (str(each) if each is CPU else f"{each}{mark}" for each in record[:2])
    return source, f"{record.ranks} ranks: {record.call}" if record.call else target


def write_trace(records: Sequence[Transfer], path: str | PathLike[str]) -> None:
    """Write complete events (``ph: X``) of the Trace Event Format, times in microseconds from the first copy.

    Processes and threads count from 1: Perfetto takes 0 for the idle process and shows wrong data
    (google/perfetto#394); the system's own thread identifiers are too long for it (google/perfetto#522). Times are
    whole numbers of nanoseconds, because Perfetto drops a copy that seems to begin before its predecessor ended.
    """
    records = list(records)  # other threads may add records meanwhile
    zero = min((record.start for record in records), default=0.0)
    names = sorted({record.backend for record in records})
    threads = sorted({(record.backend, record.thread) for record in records})
    process = {name: number for number, name in enumerate(names, 1)}
    row = {thread: number for number, thread in enumerate(threads, 1)}
    events: list[dict[str, Any]] = []
    for name, thread in threads:
        at = {"ph": "M", "pid": process[name], "tid": row[name, thread]}
        events.append({**at, "name": "process_name", "args": {"name": f"devshim on {name}"}})
        events.append({**at, "name": "thread_name", "args": {"name": f"thread {thread}"}})
    for record in records:
        start, end = (int(at * 1e9) for at in (record.start - zero, record.start - zero + record.seconds))
        events.append(
            {
                "ph": "X",
                "cat": "ranks" if record.call else "transfer",
                "name": f"{record.call}, {record.ranks} ranks" if record.call else " to ".join(_ends(record)),
                "ts": start / 1e3,
                "dur": (end - start) / 1e3,
                "pid": process[record.backend],
                "tid": row[record.backend, record.thread],
                "args": {"bytes": record.bytes, "tensors": record.tensors, "site": record.site},
            }
        )
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"traceEvents": events, "displayTimeUnit": "ns"}, file)


def draw(records: Sequence[Transfer], path: str | PathLike[str] | None) -> Any:
    """Draw a matrix of devices with the bytes copied from each to each; exchanges between ranks are not copies."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        from devshim.errors import UnsupportedError

        msg = "a picture of transfers needs matplotlib, which is not installed"
        raise UnsupportedError(msg, "pip install 'devshim[plot]'") from error
    copies = [record for record in records if not record.call]
    named = {device: name for record in copies for device, name in zip(record[:2], _ends(record), strict=True)}
    devices, sums = _by_device(copies)
    figure = Figure(figsize=(1.6 + 1.1 * len(devices), 1.4 + 0.9 * len(devices)), layout="constrained")
    axes = figure.add_subplot()
    grid = [[sums[source, target] for target in devices] for source in devices] or [[0]]
    axes.imshow(grid, cmap="Blues")
    labels = [named[device].replace(" ", "\n") for device in devices]
    axes.set_xticks(range(len(labels)), labels)
    axes.set_yticks(range(len(labels)), labels)
    axes.set_xlabel("to")
    axes.set_ylabel("from")
    most = max(sums.values(), default=0)
    for i, source in enumerate(devices):
        for j, target in enumerate(devices):
            if sums[source, target]:
                colour = "white" if sums[source, target] > most / 2 else "black"
                axes.text(j, i, size(sums[source, target]), ha="center", va="center", color=colour)
    if path is not None:
        figure.savefig(path)
    return figure
