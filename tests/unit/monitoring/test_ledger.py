"""Tests of the ledger: it records every copy with its bytes, line and thread, and nothing when it is closed."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import devshim as ds
from devshim.collectives import all_reduce
from devshim.registry import registry
from devshim.transfers import observers, observing

HOST = np.arange(6, dtype="float32").reshape(2, 3)


@pytest.fixture(autouse=True)
def _cards(cards: object) -> None:
    """Use two simulated GPUs."""


def line() -> int:
    return sys._getframe(1).f_lineno


def there(index: int = 0) -> Any:
    return ds.place(HOST, ds.gpu(index))


COPIES: dict[str, tuple[Any, list[tuple[str, str, int]]]] = {
    "to a card": (lambda x: ds.place(HOST, "gpu:1"), [("cpu", "gpu:1", 24)]),
    "to the host": (lambda x: ds.place(x, "cpu"), [("gpu:0", "cpu", 24)]),
    "between cards": (lambda x: ds.place(x, "gpu:1"), [("gpu:0", "gpu:1", 24)]),
    "copy in place": (lambda x: ds.copy(x, "gpu:0"), [("gpu:0", "gpu:0", 24)]),
    "to_numpy": (lambda x: ds.to_numpy(x), [("gpu:0", "cpu", 24)]),
    "from_numpy": (lambda x: ds.from_numpy(HOST[:1], "gpu:0"), [("cpu", "gpu:0", 12)]),
    "from_numpy, host": (lambda x: ds.from_numpy(HOST), [("cpu", "cpu", 24)]),
    "asarray": (lambda x: ds.asarray(HOST, device="gpu:1"), [("cpu", "gpu:1", 24)]),
    "tree": (lambda x: ds.place([x, {"a": HOST}, there(1)], "gpu:1"), [("cpu", "gpu:1", 24), ("gpu:0", "gpu:1", 24)]),
    "nothing to do": (lambda x: ds.place(x, "gpu:0"), []),
    "no copy": (lambda x: ds.to_numpy(HOST, copy=False), []),
    "made there": (lambda x: ds.zeros(5, device="gpu:0"), []),
    "numbers": (lambda x: ds.asarray([1.0, 2.0], device="gpu:0"), [("cpu", "gpu:0", 16)]),
    "numbers of the host": (lambda x: ds.asarray([1.0, 2.0]), []),
}


@pytest.mark.parametrize("name", COPIES)
def test_each_copy_is_recorded_to_the_byte(name: str) -> None:
    call, expected = COPIES[name]
    x, keep = there(), there(1)
    if name == "tree":
        call, keep = (lambda x: ds.place([x, {"a": HOST}, keep], "gpu:1")), keep
    with ds.transfers() as log:
        call(x)
    assert sorted((str(r.source), str(r.target), r.bytes) for r in log.records) == expected
    assert log.count == len(expected)
    assert log.total_bytes == sum(nbytes for *_, nbytes in expected)
    assert all(record.backend == "numpy" and record.seconds > 0 and record.tensors == 1 for record in log.records)


def test_bytes_by_way() -> None:
    x = there()
    with ds.transfers() as log:
        ds.place(x, "gpu:1")
        ds.place(x, "cpu")
        ds.from_numpy(HOST[:1], "gpu:1")
    assert log.bytes() == log.total_bytes == 60
    assert log.bytes(source="cuda:0") == 48
    assert log.bytes(target=1) == 36
    assert log.bytes("gpu:0", "cpu") == 24
    assert log.bytes("gpu:1", "cpu") == 0
    assert log.seconds == pytest.approx(sum(record.seconds for record in log.records))


def test_the_site_is_the_users_line() -> None:
    with ds.transfers() as log:
        before = line()
        ds.place({"a": [HOST]}, 1)
    assert log.records[0].site == f"{__file__}:{before + 1}"


def test_a_file_of_another_module_with_the_name_of_one_of_ours_is_the_users() -> None:
    """A user's program may execute code under any file name; only devshim's own files are skipped by their names."""
    program = "import devshim as ds\ndef copies(x):\n    return ds.copy(x, 'cpu')\n"
    for file in ("engine.py", "devshim/engine.py", "/elsewhere/devshim/engine.py"):
        names: dict[str, Any] = {"__name__": "devshim_of_mine"}
        exec(compile(program, file, "exec"), names)
        with ds.transfers() as log:
            names["copies"](ds.ones(3))
            names["copies"](ds.ones(3))
        assert [record.site for record in log.records] == [f"{file}:3"] * 2


def test_sites_stay_right_however_many_files_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observers, "_MOST_KNOWN", 8)
    with ds.transfers() as log:
        for number in range(40):
            exec(compile("ds.copy(x, 'cpu')", f"cell {number}", "exec"), {"ds": ds, "x": ds.ones(3)})
    assert [record.site for record in log.records] == [f"cell {number}:1" for number in range(40)]
    assert len(observers._KNOWN) <= 8


def test_the_site_of_a_compiled_function_is_the_line_that_calls_it() -> None:
    """torch.fx writes such functions, and gives their file this name."""
    written = compile("copied = ds.copy(x, 'gpu:1')", "<eval_with_key>.5", "exec")
    with ds.transfers() as log:
        before = sys._getframe().f_lineno
        exec(written, {"ds": ds, "x": np.ones(2), "__name__": "user"})
    assert log.records[0].site == f"{__file__}:{before + 1}"


def test_the_site_of_code_that_a_framework_generates_is_the_line_that_calls_it() -> None:
    """PyTorch generates some without a module; its file does not exist, and would be in the framework's folder."""
    written = compile("copied = ds.copy(x, 'gpu:1')", f"{np.__file__}:codegen(wrapper)", "exec")
    with ds.transfers() as log:
        before = sys._getframe().f_lineno
        exec(written, {"ds": ds, "x": np.ones(2)})
    assert log.records[0].site == f"{__file__}:{before + 1}"


def test_the_site_is_the_users_in_parallel_too() -> None:
    """It is the line in the callable, or that of `parallel` if no line in the callable is the user's."""
    x = there()
    with ds.transfers() as log:
        before = line()
        ds.parallel([ds.to_numpy], [x])
        ds.parallel(
            [lambda x: ds.place(x, "cpu")],
            [x],
        )
        ds.parallel([lambda x: ds.parallel([ds.to_numpy], [x])], [x])
    assert [record.site for record in log.records] == [f"{__file__}:{before + n}" for n in (1, 3, 6)]


def test_a_failed_copy_is_none() -> None:
    held = ds.memory(0).used  # by tensors that other tests left
    with ds.simulate(1, memory=held + 1024), ds.transfers() as log:
        with pytest.raises(ds.OutOfMemoryError):
            ds.place(np.zeros(1000), "gpu:0")
        ds.place(HOST, "gpu:0")
    assert log.total_bytes == 24


def test_nested_logs_record_what_is_inside_them() -> None:
    with ds.transfers() as outer:
        x = there()
        with ds.transfers() as inner:
            ds.place(x, 1)
        ds.place(x, "cpu")
    there()
    assert (outer.count, inner.count) == (3, 1)


def test_threads_and_tasks_keep_their_own() -> None:
    counts: dict[str, int] = {}
    meet = threading.Barrier(2, timeout=30)

    def body(name: str, copies: int) -> None:
        with ds.transfers() as log:
            meet.wait()
            for _ in range(copies):
                there()
            meet.wait()
        counts[name] = log.count

    with ds.transfers() as mine:
        threads = [threading.Thread(target=body, args=(str(n), n)) for n in (2, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert counts == {"2": 2, "5": 5}
    assert mine.count == 0

    async def task(copies: int) -> int:
        with ds.transfers() as log:
            for _ in range(copies):
                await asyncio.sleep(0)
                there()
        return log.count

    async def both() -> list[int]:
        return list(await asyncio.gather(task(1), task(4)))

    assert asyncio.run(both()) == [1, 4]


def test_one_block_entered_again() -> None:
    """Entered inside itself it records each copy once, and later it continues.

    After the last exit it records nothing.
    """
    block = ds.transfers()
    with block as log:
        with block as same:
            there()
        there()
    assert log is same
    assert log.count == 2
    with block, ds.transfers():
        there()
    with ds.transfers():
        there()
    assert log.count == 3


def test_what_is_over_records_nothing() -> None:
    """This includes a task started inside it, and a generator closed in another thread."""

    async def outlive() -> tuple[int, int]:
        over = asyncio.Event()

        async def copy() -> None:
            there()
            await over.wait()
            there()

        with ds.transfers() as log:
            task = asyncio.create_task(copy())
            await asyncio.sleep(0)
        with ds.transfers() as other:
            over.set()
            await task
        return log.count, other.count

    assert asyncio.run(outlive()) == (1, 0), "a task that was started in a block is heard of there, while it is open"

    def block() -> Iterator[Any]:
        with ds.transfers() as log:
            yield log

    generator = block()
    log = next(generator)
    closing = threading.Thread(target=generator.close)
    closing.start()
    closing.join()
    with ds.transfers():
        there()
    assert log.count == 0
    assert observing.ACTIVE is None


@pytest.mark.parametrize("answers", [True, False])
def test_a_sum_by_the_frameworks_own_engine_is_a_copy_of_each(answers: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each copy to the next device is recorded; nothing is recorded if the engine does not support the operation."""
    xs, devices = [there(0), there(1)], [ds.gpu(0), ds.gpu(1)]
    backend = registry.load("numpy")
    monkeypatch.setattr(backend, "all_reduce", lambda xs, op: list(xs) if answers else None)
    with ds.transfers() as log:
        assert (all_reduce._by_engine(backend, [xs], devices, "sum")[0] is not None) == answers
    ways = [(record.source, record.target, record.bytes) for record in log.records]
    assert sorted(ways) == ([(*devices, 24), (*devices[::-1], 24)] if answers else [])


def test_off_nothing_is_asked() -> None:
    assert observing.ACTIVE is None

    def fail() -> None:
        with ds.transfers():
            assert observing.ACTIVE is not None
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert observing.ACTIVE is None


def test_synchronized_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[ds.Device] = []
    monkeypatch.setattr(type(registry.load("numpy")), "synchronize", lambda self, device: waited.append(device))
    with ds.transfers():
        there()
    assert waited == []
    with ds.transfers(synchronize=True):
        there()
    assert waited == [ds.gpu(0)] * 2


def test_numbers_that_are_none_are_not_recorded() -> None:
    with ds.transfers() as log, pytest.raises(ds.ConversionError):
        ds.asarray([[1], [1, 2]], device="gpu:1")
    assert log.count == 0


def test_the_table() -> None:
    with ds.transfers() as log:
        assert repr(log) == "<no transfers>"
        for _ in range(3):
            there()
        ds.place(np.zeros(2**18), 1)
    reported = repr(log)
    first = reported.splitlines()[1].split()
    assert first[:7] == ["cpu", "gpu:1", "(simulated)", "1", "1", "2.0", "MiB"], "the largest first"
    assert "test_ledger.py:" in reported
    assert reported.splitlines()[-1].split()[:5] == ["all", "4", "4", "2.0", "MiB"]
    with ds.transfers() as host:
        ds.from_numpy(HOST)
    assert "simulated" not in repr(host)
    assert str(log) == f"{log}" == reported
    assert [record.simulated for record in (*log.records, *host.records)] == [True] * 4 + [False]


def test_the_trace_is_in_the_trace_event_format(tmp_path: Path) -> None:
    with ds.transfers() as log:
        x = there()
        ds.place(x, "gpu:1")
    log.to_chrome_trace(tmp_path / "trace.json")
    read = json.loads((tmp_path / "trace.json").read_text())
    events = [event for event in read["traceEvents"] if event["ph"] == "X"]
    assert [event["name"] for event in events] == [
        "cpu to gpu:0 (simulated)",
        "gpu:0 (simulated) to gpu:1 (simulated)",
    ]
    assert events[0]["ts"] == 0
    assert events[1]["ts"] >= events[0]["dur"] > 0
    assert events[0]["args"] == {"bytes": 24, "tensors": 1, "site": log.records[0].site}
    named = {(event["pid"], event["tid"]) for event in read["traceEvents"] if event["name"] == "thread_name"}
    assert {(event["pid"], event["tid"]) for event in events} <= named
    for event in read["traceEvents"]:
        assert min(event["pid"], event["tid"]) > 0, "Perfetto takes 0 for the idle process"
    ds.TransferLog().to_chrome_trace(tmp_path / "empty.json")
    assert json.loads((tmp_path / "empty.json").read_text())["traceEvents"] == []


def test_a_trace_has_a_row_for_each_thread_and_no_copy_begins_before_the_last_one_ended(tmp_path: Path) -> None:
    both = threading.Barrier(2)  # so that the second does not get the identifier of the first
    with ds.transfers() as log:
        ds.parallel([lambda _: [both.wait(), *(there() for _ in range(50))]] * 2, [0, 1])
    log.to_chrome_trace(tmp_path / "trace.json")
    events = [e for e in json.loads((tmp_path / "trace.json").read_text())["traceEvents"] if e["ph"] == "X"]
    rows = {event["tid"] for event in events}
    assert len(rows) == len({record.thread for record in log.records}) == 2
    for row in rows:
        mine = sorted((e["ts"], e["dur"]) for e in events if e["tid"] == row)
        assert len(mine) == 50
        for (start, duration), (following, _) in itertools.pairwise(mine):
            assert round(1e3 * (start + duration)) <= round(1e3 * following), "Perfetto drops what overlaps"


def test_a_picture_needs_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", ModuleType("matplotlib"))
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ds.UnsupportedError, match="needs matplotlib") as caught:
        ds.TransferLog().plot()
    assert caught.value.hint == "pip install 'devshim[plot]'"


def test_the_picture(tmp_path: Path) -> None:
    with ds.transfers() as log:
        ds.place(there(), "gpu:1")
    figure = log.plot(tmp_path / "who.png")
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts == ["24 B", "24 B"]
    named = [label.get_text().split() for label in figure.axes[0].get_xticklabels()]
    assert named == [["cpu"], ["gpu:0", "(simulated)"], ["gpu:1", "(simulated)"]]
    assert (tmp_path / "who.png").read_bytes().startswith(b"\x89PNG")
    assert ds.TransferLog().plot() is not None


def test_a_record_is_of_real_devices_unless_it_says_otherwise() -> None:
    record = ds.Transfer(ds.cpu(), ds.gpu(0), 4, 0.0, 1, "here.py:1", "torch", 0.0, 1)
    assert record.simulated is False


def test_a_file_name_in_the_table_is_as_it_is() -> None:
    code = compile("ds.copy(x, 'cpu')", "my[bold]file.py", "exec")
    with ds.transfers() as log:
        exec(code, {"ds": ds, "x": there()})
    assert "my[bold]file.py:1" in repr(log)
