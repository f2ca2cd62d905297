"""Tests of a ledger's reports, for copies that are written out here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import devshim as ds
from devshim.monitoring import reports
from devshim.monitoring.ledger import Transfer

CPU, G0, G1 = ds.cpu(), ds.gpu(0), ds.gpu(1)


def copy(source: Any, target: Any, nbytes: int, **more: Any) -> Transfer:
    fields = {"seconds": 0.5, "start": 10.0, "tensors": 1, "backend": "numpy", "site": "/home/user/train.py:7"}
    fields |= {"thread": 5, "simulated": True, "bytes": nbytes, **more}
    return Transfer(source=source, target=target, **fields)


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (1024**2, "1.0 MiB"),
        (5 * 1024**3, "5.0 GiB"),
        (3 * 1024**4, "3.0 TiB"),
        (2000 * 1024**4, "2000.0 TiB"),
    ],
)
def test_bytes_have_a_unit(nbytes: int, text: str) -> None:
    assert reports.size(nbytes) == text


def test_a_table_sums_up_each_line_and_all() -> None:
    records = [
        copy(CPU, G0, 1000, seconds=0.001),
        copy(CPU, G0, 1048, seconds=0.002, tensors=3),
        copy(G0, G1, 4096, site="eval.py:12", seconds=0.25, simulated=False),
    ]
    assert reports.table(records).splitlines() == [
        "from   to                 copies  tensors     size      ms  line",
        "gpu:0  gpu:1                   1        1  4.0 KiB  250.00  eval.py:12",
        "cpu    gpu:0 (simulated)       2        4  2.0 KiB    3.00  train.py:7",
        "all                            3        5  6.0 KiB  253.00",
    ]
    assert reports.table([]) == "<no transfers>"


@pytest.mark.parametrize(("lines", "more"), [(20, None), (21, "and 1 more lines"), (25, "and 5 more lines")])
def test_a_long_table_is_cut(lines: int, more: str | None) -> None:
    shown = reports.table([copy(CPU, G0, 8 + i, site=f"a.py:{i}") for i in range(lines)]).splitlines()
    assert shown[1].endswith(f"a.py:{lines - 1}")
    assert len(shown) == 1 + 20 + bool(more) + 1
    assert (shown[-2].strip() == more) if more else shown[-2].endswith("a.py:0")
    assert shown[-1].split()[:2] == ["all", str(lines)]


def test_a_trace_has_a_row_for_each_thread_of_each_framework(tmp_path: Path) -> None:
    records = [
        copy(CPU, G0, 16, start=10.0, seconds=0.5, thread=70),
        copy(G0, G1, 32, start=10.25, seconds=0.125, thread=3, tensors=2),
        copy(G1, CPU, 64, start=11.0, seconds=0.25, thread=9, backend="torch", simulated=False),
    ]
    reports.write_trace(records, tmp_path / "trace.json")
    written = json.loads((tmp_path / "trace.json").read_text())
    assert written["displayTimeUnit"] == "ns"
    events = written["traceEvents"]
    named = [(each["pid"], each["tid"], each["args"]["name"]) for each in events if each["ph"] == "M"]
    assert named == [
        (1, 1, "devshim on numpy"),
        (1, 1, "thread 3"),
        (1, 2, "devshim on numpy"),
        (1, 2, "thread 70"),
        (2, 3, "devshim on torch"),
        (2, 3, "thread 9"),
    ]
    copies = [each for each in events if each["ph"] == "X"]
    assert [(each["name"], each["ts"], each["dur"], each["pid"], each["tid"]) for each in copies] == [
        ("cpu to gpu:0 (simulated)", 0.0, 500000.0, 1, 2),
        ("gpu:0 (simulated) to gpu:1 (simulated)", 250000.0, 125000.0, 1, 1),
        ("gpu:1 to cpu", 1000000.0, 250000.0, 2, 3),
    ]
    assert copies[1]["args"] == {"bytes": 32, "tensors": 2, "site": "/home/user/train.py:7"}


def test_a_trace_of_nothing_is_empty(tmp_path: Path) -> None:
    reports.write_trace([], tmp_path / "trace.json")
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"] == []


def test_a_picture_shows_what_went_where(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    records = [copy(CPU, G0, 1024), copy(CPU, G0, 1024), copy(G0, G1, 512), copy(G0, CPU, 1024)]
    figure = reports.draw(records, tmp_path / "picture.svg")
    (axes,) = figure.axes
    assert (tmp_path / "picture.svg").stat().st_size > 0
    labels = ["cpu", "gpu:0\n(simulated)", "gpu:1\n(simulated)"]
    assert [each.get_text() for each in axes.get_xticklabels()] == labels
    assert [each.get_text() for each in axes.get_yticklabels()] == labels
    shown = {each.get_text(): (each.get_position(), each.get_color()) for each in axes.texts}
    assert shown == {
        "2.0 KiB": ((1, 0), "white"),
        "512 B": ((2, 1), "black"),
        "1.0 KiB": ((0, 1), "black"),
    }
    assert axes.images[0].get_array().tolist() == [[0, 2048, 0], [1024, 0, 512], [0, 0, 0]]
    assert len(reports.draw([], None).axes) == 1


def test_exchanges_between_ranks_are_rows_and_no_copies_between_devices(tmp_path: Path) -> None:
    records = [copy(CPU, G0, 10), copy(G0, G0, 4096, call="all_reduce, sum", ranks=3)]
    first = reports.table(records).splitlines()[1]
    assert first.startswith("gpu:0 (simulated)  3 ranks: all_reduce, sum")
    assert "4.0 KiB" in first
    matrix, _, lines = reports.html(records).partition("</table>")
    assert "4.0 KiB" not in matrix.partition("<table")[2]
    assert "3 ranks: all_reduce, sum" in lines
    path = tmp_path / "trace.json"
    reports.write_trace(records, path)
    events = [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]
    assert [(event["name"], event["cat"]) for event in events] == [
        ("cpu to gpu:0 (simulated)", "transfer"),
        ("all_reduce, sum, 3 ranks", "ranks"),
    ]
