"""Tests of `explain`: the native line of each call, inside its block only."""

from __future__ import annotations

import asyncio
import io
import threading
from typing import Any

import numpy as np
import pytest

import devshim as ds
from devshim.monitoring import explain
from devshim.transfers import observing


def test_lines_are_recorded_and_printed(cards: object, capsys: pytest.CaptureFixture[str]) -> None:
    with ds.explain() as lines:
        x = ds.zeros((2, 3), dtype="float32")
        ds.place(x, "gpu:1")
        ds.to_numpy(x)
        ds.run(np.add, x, x)
    assert lines == ["np.zeros((2, 3), dtype=np.float32)", "np.asarray(x)", "np.array(x, copy=True)", "f(a, a)"]
    assert capsys.readouterr().out.splitlines() == lines
    ds.zeros(1)
    assert len(lines) == 4
    assert capsys.readouterr().out == ""


def test_elsewhere_or_nowhere(capsys: pytest.CaptureFixture[str]) -> None:
    file = io.StringIO()
    with ds.explain(file=file) as reported, ds.explain(file=None) as silent:
        ds.ones(1)
    assert reported == silent == file.getvalue().splitlines() == ["np.ones((1,))"]
    assert capsys.readouterr().out == ""


def test_nothing_is_left_on() -> None:
    with pytest.raises(ZeroDivisionError), ds.explain(file=None):
        raise ZeroDivisionError
    assert observing.ACTIVE is None
    assert explain._open == 0


def test_threads_record_their_own_calls_alone() -> None:
    barrier = threading.Barrier(4)
    heard: dict[int, list[str]] = {}

    def work(number: int) -> None:
        for _ in range(50):
            with ds.explain(file=None) as lines:
                barrier.wait()
                ds.zeros(number)
            heard[number] = lines
            assert lines == [f"np.zeros(({number},))"], lines

    ds.use("numpy")
    threads = [threading.Thread(target=work, args=(i,)) for i in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert heard == {i: [f"np.zeros(({i},))"] for i in range(1, 5)}
    assert observing.ACTIVE is None


def test_one_object_again_and_in_tasks() -> None:
    listener = ds.explain(file=None)

    async def task() -> None:
        with listener:
            await asyncio.sleep(0)
            ds.eye(2)

    async def main() -> None:
        await asyncio.gather(task(), task())

    asyncio.run(main())
    with listener as lines:
        ds.eye(3)
    assert lines == ["np.eye(2, 2, 0)", "np.eye(2, 2, 0)", "np.eye(3, 3, 0)"]
    assert observing.ACTIVE is None


def test_a_backend_without_a_line_of_its_own(fake: Any) -> None:
    with ds.using("fakeframe"), ds.explain(file=None) as lines:
        x = ds.zeros(2, dtype="float32")
        ds.place(x, "gpu:1")
    assert lines == ["# Fakeframe has no native line for ds.zeros", "x.go('gpu:1')"]


def test_what_is_in_a_list_is_named_and_not_read() -> None:
    class Model:
        def __repr__(self) -> str:
            raise AssertionError("its text may be pages, and a transfer")

    with ds.explain(file=None) as lines:
        ds.run(lambda given: None, (Model(), [ds.ones(2), 3], (4,)))
    assert lines[-1] == "f((Model, [a, 3], (4,)))"


def test_long_arguments_are_abridged() -> None:
    with ds.explain(file=None) as lines:
        ds.asarray(list(range(1000)))
    assert len(lines[0]) < 100
