"""Two ways of doing one thing, timed by turns in one process: A B B A, so that a busy machine slows both alike.

What is compared is the ratio of neighbours, never two times measured apart: on a shared machine absolute times double
from one minute to the next while such ratios hold.  Who goes first changes each time: a copy of 64 MiB gives its pages
back to the system, and the next takes them from there; with A B A B a copy beside the very same copy came out at 1.02
in every third process, where the interval had no 1 in it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from timeit import Timer
from typing import Any

BATCH = 0.0006
"""Seconds that one turn of a quick statement lasts: long beside the clock's own cost, short beside a busy spell."""


@dataclass(frozen=True)
class Spread:
    """The median of some ratios and how far it can be trusted.

    Args:
        median: Half of the ratios are below.
        quartiles: A quarter is below the first, a quarter above the second.
        interval: The median's 95% confidence interval, from the ranks of the ratios: no distribution is assumed.
    """

    median: float
    quartiles: tuple[float, float]
    interval: tuple[float, float]


def spread(values: Sequence[float]) -> Spread:
    """Return the median of numbers with its spread."""
    ordered = sorted(values)
    n = len(ordered)
    low = max(0, math.floor((n - 1.96 * math.sqrt(n)) / 2))
    quartiles = statistics.quantiles(ordered, n=4, method="inclusive") if n > 1 else [ordered[0]] * 3
    return Spread(statistics.median(ordered), (quartiles[0], quartiles[2]), (ordered[low], ordered[n - 1 - low]))


def ratios(ours: Sequence[float], others: Sequence[float]) -> Spread:
    """Return the spread of each of our times over the other's of the same turn."""
    return spread([a / b for a, b in zip(ours, others, strict=True)])


def batch_of(timer: Timer) -> int:
    """Return how often a statement runs in one turn; running it for that warms it up, too."""
    timer.timeit(1)
    number = 1
    while (took := timer.timeit(number)) < BATCH:
        number = max(number * 2, min(number * 100, math.ceil(number * BATCH / max(took, 1e-9))))
    return number


def interleaved(
    benchmark: Any, ways: Mapping[str, str | Callable[[], object]], names: Mapping[str, Any], rounds: int
) -> dict[str, list[float]]:
    """Time statements by turns; the first is pytest-benchmark's own, the others its setup: before or after its turn.

    Args:
        benchmark: pytest-benchmark's fixture.
        ways: By the name each has in the results, Python statements, or functions of no arguments.
        names: What the statements know by name.
        rounds: How many turns each gets.

    Returns:
        The seconds per call in each turn, by name.  As in `timeit`, the garbage collector is off meanwhile.
    """
    timers = {way: Timer(statement, globals=dict(names)) for way, statement in ways.items()}
    batches = {way: batch_of(timer) for way, timer in timers.items()}
    times: dict[str, list[float]] = {way: [] for way in ways}

    def turn(way: str) -> None:
        times[way].append(timers[way].timeit(batches[way]) / batches[way])

    first, *others = ways
    benchmark.extra_info["calls per round"] = batches[first]
    started = 0

    def between() -> None:
        """End the last round, where the others come after the first, and begin the next, where they come before."""
        nonlocal started
        if started and started % 2 == 0:
            for way in reversed(others):
                turn(way)
        started += 1
        if started % 2 == 1 and started <= rounds:
            for way in others:
                turn(way)

    benchmark.pedantic(turn, args=(first,), setup=between, rounds=rounds)
    between()
    return times
