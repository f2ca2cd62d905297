"""Growth: the cost of a leaf in trees of 10 to 1,000,000 leaves, in time and in memory of the call itself."""

from __future__ import annotations

import statistics
import threading
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import devshim as ds
from benchmarks.record import Row
from benchmarks.session import Rival, Session

COUNTS = (10, 1000, 100_000, 1_000_000)
GROWTH = 1.3
"""The largest cost of a leaf in the largest tree, of that in the smallest."""
THREADS, CALLS = 64, 20
BUDGET = 0.6
"""Seconds after which a tree is not measured again."""


def per_leaf(call: Callable[[Any], object], tree: Any, count: int) -> float:
    """Return the median seconds per leaf, with the garbage collector enabled as in a program.

    A first call that is not counted allocates the memory: its new pages take longer than the copies, natively, too.
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
    """Return the largest amount of Python memory that a call uses at one time, in bytes."""
    tracemalloc.start()
    try:
        call(tree)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_growth(benchmark: Any, session: Session) -> None:
    """A tree that is already there, and a copied one.

    Pytest-benchmark's own number is for 1,000 leaves already there.
    """
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
        (_, first), *_, (_, last) = series
        row = Row("growth", f"cost per leaf, {words}", f"{COUNTS[-1]:,} leaves", value=last / first, target=GROWTH)
        session.record.rows.append(Row(**{**vars(row), "unit": f"of that of {COUNTS[0]} leaves"}))


def test_threads(benchmark: Any, session: Session) -> None:
    """Many threads place trees at the same time, or one thread places as many: Python lets one run at a time.

    A lock that all calls take would add its waiting to each.
    """
    tree = [ds.zeros(1, dtype="float32") for _ in range(1000)]

    def place_all(count: int) -> None:
        for _ in range(count):
            ds.place(tree, session.d)

    def in_threads() -> None:
        threads = [threading.Thread(target=place_all, args=(CALLS,)) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    case, ours = f"1,000 leaves, there already, {CALLS} times in {THREADS} threads", ("ds.place(tree, d)", in_threads)
    rivals = [Rival("one thread", lambda: place_all(CALLS * THREADS), GROWTH)]
    session.versus(benchmark, "growth", case, ours, rivals, {}, rounds=min(session.rounds, 9))
