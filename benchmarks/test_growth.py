"""Growth: what a leaf costs in trees of 10, 1,000 and 100,000, in time and in memory for the call itself."""

from __future__ import annotations

import statistics
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import devshim as ds
from benchmarks.record import Row
from benchmarks.session import Session

COUNTS = (10, 1000, 100_000)
BUDGET = 0.6
"""Seconds after which a tree is not measured once more."""


def per_leaf(call: Callable[[Any], object], tree: Any, count: int) -> float:
    """Return the median seconds per leaf, the garbage collector at work as it is in a program.

    A first call that is not counted gets the memory: its new pages take longer than the copies, natively, too.
    """
    call(tree)
    repeats = max(1, 2000 // count)
    times: list[float] = []
    end = time.perf_counter() + BUDGET
    while not times or (time.perf_counter() < end and len(times) < 41):
        begun = time.perf_counter()
        for _ in range(repeats):
            call(tree)
        times.append((time.perf_counter() - begun) / repeats / count)
    return statistics.median(times)


def peak(call: Callable[[Any], object], tree: Any) -> int:
    """Return the most bytes of Python's memory that a call has at one time."""
    tracemalloc.start()
    try:
        call(tree)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_growth(benchmark: Any, session: Session) -> None:
    """There already and copied; pytest-benchmark's own number is of 1,000 leaves there already."""
    d = session.d
    ways = {"there already": lambda tree: ds.place(tree, d), "copied": lambda tree: ds.copy(tree, d)}
    trees = {count: [ds.zeros(1, dtype="float32") for _ in range(count)] for count in COUNTS}
    benchmark(ways["there already"], trees[1000])
    memory = [(count, peak(ways["there already"], tree) / count) for count, tree in trees.items()]
    session.record.series["there already, memory"] = memory
    for words, call in ways.items():
        series = [(count, per_leaf(call, tree, count) * 1e9) for count, tree in trees.items()]
        session.record.series[words] = series
        for count, value in series:
            seconds = value * count / 1e9
            row = Row("growth", f"{count:,} leaves, {words}", f"ds.{'place' if words != 'copied' else 'copy'}(tree, d)")
            session.record.rows.append(Row(**{**vars(row), "value": value, "unit": "ns per leaf", "seconds": seconds}))
