"""The textbooks' exercise, examples/frobenius.py: 1,000 norms that are logged one by one, or together at the end.

A second benchmark measures the log itself: 500 numbers are appended and flushed, compared with ``float`` of each, with
little computation.
"""

from __future__ import annotations

from typing import Any

from example_programs import load_example

import devshim as ds
from benchmarks.record import Row
from benchmarks.session import Rival, Session

COUNT = 1000
ROUNDS = 9
SUMS = 500
"""The number of values in the log in the benchmark with little computation."""


def test_frobenius(benchmark: Any, session: Session) -> None:
    """On the host there is nothing to wait for, so only the number of transfers differs.

    On a GPU the time does, too.
    """
    products = load_example("frobenius").Products(session.d)
    for words, way, expected in (("at the end", products.at_the_end, 1), ("one by one", products.one_by_one, COUNT)):
        with ds.transfers() as copies:
            way(COUNT)
        target = float(expected) if way == products.at_the_end else None
        row = Row("metrics", f"{COUNT:,} norms, {words}", f"{words}", value=float(copies.count), target=target)
        session.record.rows.append(Row(**{**vars(row), "unit": "transfers"}))
    session.versus(
        benchmark,
        "metrics",
        f"{COUNT:,} norms of products of 100x100",
        ("MetricLog, read at the end", lambda: products.at_the_end(COUNT)),
        [Rival("one by one", lambda: products.one_by_one(COUNT))],
        {},
        rounds=min(ROUNDS, session.rounds),
        note="on the host, where reading a number waits for nothing",
    )


def test_sums(benchmark: Any, session: Session) -> None:
    """Each number is the result of an operator; a framework may cache ``float`` of a tensor."""
    x = ds.ones(8, dtype="float32", device=session.d)

    def number() -> Any:
        return session.names["tf"].reduce_sum(x) if session.backend == "tensorflow" else x.sum()

    def at_the_end() -> object:
        log = ds.MetricLog(session.d)
        for _ in range(SUMS):
            log.append(number())
        return log.flush()

    def one_by_one() -> object:
        return [float(number()) for _ in range(SUMS)]

    session.versus(
        benchmark,
        "metrics",
        f"{SUMS} sums of 8 numbers",
        ("MetricLog, read at the end", at_the_end),
        [Rival("float(x), one by one", one_by_one)],
        {},
        rounds=min(ROUNDS, session.rounds),
        note="on the host, where reading a number waits for nothing",
    )
